"""Mixed precision: operations that lose little by it compute in float16 or bfloat16, others in float32."""

from plait._public import publish as _publish
from plait.amp.autocast_mode import *
from plait.amp.autocast_mode import custom_bwd as custom_bwd
from plait.amp.autocast_mode import custom_fwd as custom_fwd
from plait.amp.autocast_mode import is_autocast_available as is_autocast_available
from plait.amp.grad_scaler import GradScaler as GradScaler

_publish(globals())
