"""The connection under everything: logging in, staying, publishing, subscribing, asking."""
