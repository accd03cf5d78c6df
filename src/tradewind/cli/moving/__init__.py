"""`tradewind move`: moves a stream with its consumers from one server to another, in steps."""
