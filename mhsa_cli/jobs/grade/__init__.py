"""Grades in processes of their own."""
