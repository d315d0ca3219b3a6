"""What several seeds show."""
