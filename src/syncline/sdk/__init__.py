"""What connector authors import."""
