"""A signal dispatcher on blinker: named points, declared payloads, order, and a hot door."""

from blinker import ANY

from eventbus.background import QueueFullError
from eventbus.bus import Bus
from eventbus.codegen import DEPTH_LIMIT
from eventbus.emitter import Emitter
from eventbus.errors import (
    BindingError,
    DuplicateError,
    OrderError,
    ReentrancyError,
    UnknownPointError,
)
from eventbus.options import Options
from eventbus.order import PRIORITIES, Order
from eventbus.signal import Signal
from eventbus.subscription import Stats, Subscription, SubscriptionGroup

__all__ = [
    "ANY",
    "DEPTH_LIMIT",
    "PRIORITIES",
    "BindingError",
    "Bus",
    "DuplicateError",
    "Emitter",
    "Options",
    "Order",
    "OrderError",
    "QueueFullError",
    "ReentrancyError",
    "Signal",
    "Stats",
    "Subscription",
    "SubscriptionGroup",
    "UnknownPointError",
]
