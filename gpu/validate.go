package gpu

import (
	"fmt"

	"github.com/plait-ml/plait/gpu/shader"
)

// validate checks a program against the limits of the device. wgpu-native does not check workgroup memory, and a driver may crash where a
// limit is exceeded.
func (p *programs) validate(source *shader.Source) error {
	l := p.device.limits
	if source.Threads == 0 {
		return fmt.Errorf("it has no workgroup size")
	}
	if source.Threads > l.Invocations {
		return fmt.Errorf("a workgroup has %d invocations, the limit is %d", source.Threads, l.Invocations)
	}
	if source.Shared > l.WorkgroupStorage {
		return fmt.Errorf("a workgroup uses %d bytes of memory, the limit is %d", source.Shared, l.WorkgroupStorage)
	}
	if most := min(l.Bindings, shader.MaxBuffers); source.Buffers > most {
		return fmt.Errorf("it binds %d buffers, the limit is %d", source.Buffers, most)
	}
	return nil
}
