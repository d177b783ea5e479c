"""What every part is built with: the store, the clock, the limits, the alarms and the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from tidings.core.clock import Clock
from tidings.core.settings import Limits
from tidings.core.store.store import Store
from tidings.core.telemetry.alarms import Alarms
from tidings.core.telemetry.metrics import Meters


@dataclass(frozen=True, slots=True)
class Essentials:
    store: Store
    clock: Clock
    # The limits at the start; a reload passes new ones to the parts that use them.
    limits: Limits
    alarms: Alarms
    metrics: Meters
