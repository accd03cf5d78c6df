"""`tradewind auth`: operators, accounts, users and their keys."""
