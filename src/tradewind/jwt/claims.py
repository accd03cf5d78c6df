"""The claims of operators, accounts and users as types: the content of a JWT.

Owns the fields, their JSON names and their defaults. It never signs, checks or parses anything,
which is up to `codec` and `claim_rules`.

Two conventions are those of other tools. Empty fields are not written. An absent limit is 0, which
allows nothing; -1 means "no limit", and is the default of new claims. A list may be None, because
an explicit empty list differs from none for users of a scoped key, which may not have restrictions
of their own.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

NO_LIMIT = -1
EVERYBODY = "*"  # in revocations, and in the accounts that an authorisation service may choose
VERSION = 2

OPERATOR = "operator"
ACCOUNT = "account"
USER = "user"
ACTIVATION = "activation"
AUTHORIZATION_REQUEST = "authorization_request"
AUTHORIZATION_RESPONSE = "authorization_response"
GENERIC = "generic"

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Weight = Annotated[int, msgspec.Meta(ge=0, le=255)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Texts = list[str] | None


class Part(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of everything inside a JWT."""


class SubjectClaims(Part):
    """Lists of allowed and denied subjects."""

    allow: Texts = None
    deny: Texts = None


class ResponseClaims(Part, omit_defaults=False):
    """How many responses may be published without a permission of their own, and for how long
    (ns).
    """

    max: Integer = 0
    ttl: Integer = 0


class TimeRange(Part):
    """A part of every day, `HH:MM:SS` to `HH:MM:SS`; may cross midnight."""

    start: str = ""
    end: str = ""


class PermissionClaims(Part):
    """The subjects that may be published and subscribed to."""

    pub: SubjectClaims = msgspec.field(default_factory=SubjectClaims)
    sub: SubjectClaims = msgspec.field(default_factory=SubjectClaims)
    resp: ResponseClaims | None = None


class UserRestrictions(PermissionClaims):
    """All restrictions of a user, or of the template of a scoped key."""

    src: Texts = None
    times: list[TimeRange] | None = None
    times_location: str = ""
    subs: Integer = 0
    data: Integer = 0
    payload: Integer = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: Texts = None


class UserFields(UserRestrictions):
    """The fields that only a user's JWT has."""

    issuer_account: str = ""
    tags: Texts = None
    type: str = ""
    version: Integer = 0


class ScopeTemplate(UserRestrictions, omit_defaults=False):
    """The restrictions of all users whom a scoped key signs; here an absent limit means no
    limit.
    """

    subs: Integer = NO_LIMIT
    data: Integer = NO_LIMIT
    payload: Integer = NO_LIMIT


class UserScope(Part, omit_defaults=False):
    """A signing key of an account that can only create users of one kind."""

    kind: str = "user_scope"
    key: str = ""
    role: str = ""
    template: ScopeTemplate = msgspec.field(default_factory=ScopeTemplate)
    description: str = ""


class Latency(Part):
    """The subject for latencies of a service, and the percentage of measured requests."""

    sampling: Integer | str = 0
    results: str = ""


class Export(Part):
    """An offer of an account to other accounts."""

    name: str = ""
    subject: str = ""
    type: str = ""
    token_req: bool = False
    revocations: dict[str, Integer] = msgspec.field(default_factory=dict)
    response_type: str = ""
    response_threshold: Integer = 0
    service_latency: Latency | None = None
    account_token_position: Count = 0
    advertise: bool = False
    allow_trace: bool = False
    description: str = ""
    info_url: str = ""


class Import(Part):
    """A use of another account's export."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False


class JetStreamLimits(Part):
    """The storage limits of an account; 0 bytes: nothing of that kind."""

    mem_storage: Integer = 0
    disk_storage: Integer = 0
    streams: Integer = 0
    consumer: Integer = 0
    max_ack_pending: Integer = 0
    mem_max_stream_bytes: Integer = 0
    disk_max_stream_bytes: Integer = 0
    max_bytes_required: bool = False


class AccountClaimLimits(JetStreamLimits):
    """All limits of an account."""

    subs: Integer = 0
    data: Integer = 0
    payload: Integer = 0
    imports: Integer = 0
    exports: Integer = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: Integer = 0
    leaf: Integer = 0
    tiered_limits: dict[str, JetStreamLimits] = msgspec.field(default_factory=dict)


class WeightedMapping(Part):
    """One destination of a mapping; without a weight, all messages go there."""

    subject: str = ""
    weight: Weight = 0
    cluster: str = ""


class ExternalAuthorization(Part):
    """The delegation of logins to a service."""

    auth_users: Texts = None
    allowed_accounts: Texts = None
    xkey: str = ""


class TraceFields(Part):
    """The destination of message traces."""

    dest: str = ""
    sampling: Integer = 0


class OperatorFields(Part):
    """The fields that only an operator's JWT has."""

    signing_keys: Texts = None
    account_server_url: str = ""
    operator_service_urls: Texts = None
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False
    tags: Texts = None
    type: str = ""
    version: Integer = 0


class AccountFields(Part):
    """The fields that only an account's JWT has."""

    imports: list[Import] = msgspec.field(default_factory=list)
    exports: list[Export] = msgspec.field(default_factory=list)
    limits: AccountClaimLimits = msgspec.field(default_factory=AccountClaimLimits)
    signing_keys: list[str | UserScope] = msgspec.field(default_factory=list)
    revocations: dict[str, Integer] = msgspec.field(default_factory=dict)
    default_permissions: PermissionClaims = msgspec.field(default_factory=PermissionClaims)
    mappings: dict[str, list[WeightedMapping]] = msgspec.field(default_factory=dict)
    authorization: ExternalAuthorization = msgspec.field(default_factory=ExternalAuthorization)
    trace: TraceFields | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""
    tags: Texts = None
    type: str = ""
    version: Integer = 0


class ActivationFields(Part):
    """A permission to import the exporter's `subject`, for the account that is the subject of the
    JWT.
    """

    subject: str = ""
    kind: str = ""
    issuer_account: str = ""
    tags: Texts = None
    type: str = ""
    version: Integer = 0


class AuthorizationRequestFields(Part):
    """A login about which a service is asked; its parts are as the server has written them."""

    server_id: dict[str, Any] = msgspec.field(default_factory=dict)
    user_nkey: str = ""
    client_info: dict[str, Any] = msgspec.field(default_factory=dict)
    connect_opts: dict[str, Any] = msgspec.field(default_factory=dict)
    client_tls: dict[str, Any] | None = None
    request_nonce: str = ""
    tags: Texts = None
    type: str = ""
    version: Integer = 0


class AuthorizationResponseFields(Part):
    """The decision of the service: a user's JWT, or an error."""

    jwt: str = ""
    error: str = ""
    issuer_account: str = ""
    tags: Texts = None
    type: str = ""
    version: Integer = 0


class Claims(Part):
    """The fields that every JWT has. Times are in seconds; 0 is none."""

    aud: str = ""
    exp: Integer = 0
    jti: str = ""
    iat: Integer = 0
    iss: str = ""
    name: str = ""
    nbf: Integer = 0
    sub: str = ""

    @property
    def is_self_signed(self) -> bool:
        """Whether the subject of the JWT has signed it."""
        return self.iss == self.sub


class OperatorClaims(Claims):
    """An operator of servers, and the keys that sign accounts for it."""

    nats: OperatorFields = msgspec.field(default_factory=OperatorFields)


class AccountClaims(Claims):
    """An account, as signed by its operator."""

    nats: AccountFields = msgspec.field(default_factory=AccountFields)

    def scopes(self) -> dict[str, UserScope | None]:
        """The signing keys, with the scope of those that have one."""
        return {
            (entry if isinstance(entry, str) else entry.key): (
                None if isinstance(entry, str) else entry
            )
            for entry in self.nats.signing_keys
        }

    def has_jetstream(self) -> bool:
        """Whether the account may store anything."""
        limits = self.nats.limits
        places = list(limits.tiered_limits.values()) or [limits]
        return any(place.mem_storage or place.disk_storage for place in places)


class UserClaims(Claims):
    """A user, as signed by its account."""

    nats: UserFields = msgspec.field(default_factory=UserFields)

    @property
    def account(self) -> str:
        """The account of the user; a signing key names it explicitly."""
        return self.nats.issuer_account or self.iss


class ActivationClaims(Claims):
    """The permission of an exporter for one importer."""

    nats: ActivationFields = msgspec.field(default_factory=ActivationFields)


class AuthorizationRequest(Claims):
    """The request of a server about a login."""

    nats: AuthorizationRequestFields = msgspec.field(default_factory=AuthorizationRequestFields)


class AuthorizationResponse(Claims):
    """The response to an AuthorizationRequest."""

    nats: AuthorizationResponseFields = msgspec.field(default_factory=AuthorizationResponseFields)


class GenericClaims(Claims):
    """The claims of any other signed JWT."""

    nats: dict[str, Any] = msgspec.field(default_factory=dict)


def new_operator(key: str, name: str = "") -> OperatorClaims:
    """An operator with only its key."""
    return OperatorClaims(sub=key, name=name)


def new_account(key: str, name: str = "") -> AccountClaims:
    """An account without limits, and without JetStream."""
    limits = AccountClaimLimits(
        subs=NO_LIMIT,
        data=NO_LIMIT,
        payload=NO_LIMIT,
        imports=NO_LIMIT,
        exports=NO_LIMIT,
        wildcards=True,
        conn=NO_LIMIT,
        leaf=NO_LIMIT,
    )
    return AccountClaims(sub=key, name=name, nats=AccountFields(limits=limits))


def new_user(key: str, name: str = "", *, is_scoped: bool = False) -> UserClaims:
    """A user without limits; a user of a scoped key leaves them to its template."""
    if is_scoped:
        return UserClaims(sub=key, name=name)
    fields = UserFields(subs=NO_LIMIT, data=NO_LIMIT, payload=NO_LIMIT)
    return UserClaims(sub=key, name=name, nats=fields)
