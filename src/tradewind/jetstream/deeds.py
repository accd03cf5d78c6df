"""Whether a requester may have the server do something, by whatever route the request arrived.

Owns which subjects a deed needs; `broker.authority` decides about them. A permission in NATS is
about a subject; a deed is what happens when a request to a subject is served. The same deed can be
requested under several subjects (`$TW.API`, requests of the previews, parts of a transaction), and
by a configuration for a later time. It is allowed if the requester may publish to the subject of
the deed itself, which the table of endpoints names. How each route gets here:

- a plain subject, one that names the domain, or one that a mapping of the account changes: the
  session has mapped it before it checked, so that the subject is that of the deed;
- a leaf connection: the same, with the rules of the connection;
- an import: the exporter has let the other account in. For what a request needs besides its own
  subject, that account must have an import that covers it, and the client permission for all of
  that import;
- messages of the server itself, to subjects that others have chosen (answers, deliveries,
  republished messages): no requests at all, the router keeps them from services
  (`Router.publish_as`). Through an import such a message is one of the other account, but has no
  sender: no deed that needs a permission is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api import own_errors
from tradewind.api.endpoint_row import OWN_PREFIX
from tradewind.api.endpoints import ENDPOINT_BY_NAME
from tradewind.broker.authority import Authority

if TYPE_CHECKING:
    from tradewind.api.endpoint_row import ApiEndpoint, EndpointCall


class Requester(Authority, frozen=True):
    """The requester of something that concerns the streams of an account."""

    def check(self, subject: str) -> None:
        """ApiError unless publishing to a literal subject is allowed."""
        if not self.may(subject):
            raise own_errors.NOT_ALLOWED(subject=subject)

    def check_all(self, pattern: str) -> None:
        """ApiError unless publishing to all that a pattern matches is allowed."""
        if not self.may_all(pattern):
            raise own_errors.NOT_ALLOWED(subject=pattern)

    def check_deed(self, endpoint: ApiEndpoint, stream: str = "", consumer: str = "") -> None:
        """ApiError unless the requester may do this; `*` as a name stands for all names."""
        subject = endpoint.subject_for(stream, consumer)
        if "*" in (stream, consumer):
            self.check_all(subject)
        else:
            self.check(subject)

    def check_call(self, call: EndpointCall) -> None:
        """ApiError unless what a request needs besides its own subject is allowed."""
        endpoint = call.endpoint
        if endpoint.prefix == OWN_PREFIX and self.session is None:
            raise own_errors.NO_CLIENT()
        for name in endpoint.needs or ():
            self.check_deed(ENDPOINT_BY_NAME[name], call.stream, call.consumer)
