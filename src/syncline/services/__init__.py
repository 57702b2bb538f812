"""What people do: the calls behind the library, the API and the command line."""
