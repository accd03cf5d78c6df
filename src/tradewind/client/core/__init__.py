"""The core connection: login, reconnecting, publishing, subscribing, requests."""
