"""Operator mode: trusted keys, sources of accounts, and the effect of account changes.

`trust` holds the keys that may sign accounts, `account_book` the accounts in use, `resolvers` the
sources of other accounts, `claims_requests` the requests of the system account. Logins are still
decided by the gate alone (`server.auth`).
"""
