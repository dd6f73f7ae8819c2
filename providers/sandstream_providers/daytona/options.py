"""What the user may say about a box at Daytona: the ``options`` of a box specification."""

from __future__ import annotations

from typing import Annotated

import msgspec

from sandstream_providers.hosted import vendor as names
from sandstream_providers.interface import BoxSpec, ProviderError

PREFIX = names.PREFIX
"""Labels that begin with it are ours."""
NET_MINUTES = 15
"""The vendor stops a box after this long without activity, unless an option says otherwise."""
KEPT_MINUTES = 7 * 24 * 60
"""The vendor deletes a box that has been stopped for this long."""
MOST_URL_S = 24 * 60 * 60

Amount = Annotated[int, msgspec.Meta(ge=1)]


class DaytonaResources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size of a box. None: the vendor's default."""

    cpu: Amount | None = None
    """Cores."""
    memory: Amount | None = None
    """GiB."""
    disk: Amount | None = None
    """GiB."""


class DaytonaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of one box."""

    image: str = ""
    """An image of a registry. The vendor builds a snapshot of it on first use, which takes long."""
    snapshot: str = ""
    """A snapshot of the account. Without image and snapshot, the vendor's default is used."""
    resources: DaytonaResources | None = None
    """Only with an image: a snapshot decides its own resources."""
    name: str = ""
    """Later generations of the sandbox get a number behind it. Empty: the key of the box."""
    auto_stop_interval: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Minutes without activity after which the vendor stops the box. The number is passed on as it
    is, and the vendor counts minutes. 0: ``NET_MINUTES``, so that no box is left running for good.
    """
    create_timeout: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Seconds until :meth:`.vendor.DaytonaVendor.create` returns a box that still starts."""
    start_timeout: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Seconds that a sleeping box may take to wake."""
    url_ttl_s: Annotated[int, msgspec.Meta(ge=1, le=MOST_URL_S)] = 3600
    """How long the address of a port is valid."""
    ttl_minutes: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The vendor deletes the box after this long, in any state. 0: never."""
    labels: dict[str, str] = {}
    users: list[str] = []
    """Accounts to create in the box. Its own user must be root, or become root by ``sudo``."""
    groups: dict[str, list[str]] = {}
    """Groups to make, with their members."""


def options_of(spec: BoxSpec) -> DaytonaOptions:
    """Raises ProviderError for an unknown option, a wrong type, or options that exclude each other.
    An option that is None counts as not given.
    """
    return read(spec.options)


def read(given: dict[str, object]) -> DaytonaOptions:
    """Raises ProviderError like :func:`options_of`."""
    known = DaytonaOptions.__struct_fields__
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ProviderError(
            f"the Daytona provider has no option {', '.join(map(repr, unknown))}; it has: "
            f"{', '.join(known)}"
        )
    set_ = {name: value for name, value in given.items() if value is not None}
    try:
        options = msgspec.convert(set_, DaytonaOptions)
    except msgspec.ValidationError as error:
        raise ProviderError(f"an option of the Daytona provider is wrong: {error}") from error
    if options.image and options.snapshot:
        raise ProviderError("a Daytona sandbox has an image or a snapshot, not both")
    if options.image.split() not in ([], [options.image]):
        raise ProviderError(f"not the name of an image: {options.image!r}")
    if options.resources is not None and not options.image:
        raise ProviderError(
            "the resources of a Daytona sandbox can be chosen only with an image: a snapshot has "
            "its own"
        )
    if ours := sorted(name for name in options.labels if name.startswith(PREFIX)):
        raise ProviderError(f"labels that begin with {PREFIX!r} are not free: {', '.join(ours)}")
    return options


def name_of(spec: BoxSpec) -> str:
    """The name of the box: unique in the account, and never used again."""
    chosen = options_of(spec).name
    if not chosen:
        return spec.key
    generation = spec.labels.get("generation", "")
    return chosen if generation in ("", "0", "1") else f"{chosen}-{generation}"
