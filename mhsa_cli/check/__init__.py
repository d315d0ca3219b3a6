"""Grade attention that somebody else wrote: find out how it is called, hold it to the laws, name what is wrong."""
