"""Client of treadle's training runs; `docs/training.md` is the API that it wraps.

`Client` and `Job` are synchronous, `AsyncClient` and `AsyncJob` asynchronous.
"""

from ._http import NotReady, TreadleError
from ._stream import StreamEvent
from .aio import AsyncBatch, AsyncClient, AsyncJob, AsyncMember
from .job import Client, Job, JobBatch, JobMember
from .payload import Payload, PayloadError, Sequence, digest
from .policies import Binding, Policy
from .records import (
    Batch,
    BatchGroup,
    BatchMember,
    Group,
    JobView,
    Member,
    Sample,
    Settings,
    Step,
)
from .weights import AsyncWeights, Fleet, Holding, NotServing, StoredVersion, Version, Weights

__all__ = [
    "AsyncBatch",
    "AsyncClient",
    "AsyncJob",
    "AsyncMember",
    "AsyncWeights",
    "Batch",
    "BatchGroup",
    "BatchMember",
    "Binding",
    "Client",
    "Fleet",
    "Group",
    "Holding",
    "Job",
    "JobBatch",
    "JobMember",
    "JobView",
    "Member",
    "NotReady",
    "NotServing",
    "Payload",
    "PayloadError",
    "Policy",
    "Sample",
    "Sequence",
    "Settings",
    "Step",
    "StoredVersion",
    "StreamEvent",
    "TreadleError",
    "Version",
    "Weights",
    "digest",
]
