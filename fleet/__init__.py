"""A fleet of 200,000 connections with three troubles, and whether every page tells of them."""
