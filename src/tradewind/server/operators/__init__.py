"""Operator mode: whom the server trusts, where accounts come from, and what their changes do.

`trust` holds the keys that may sign accounts, `account_book` the accounts that are in use,
`resolvers` where others come from, `requests` what the system account may ask and order. Who may
enter is still decided by the gate alone (`server.auth`).
"""
