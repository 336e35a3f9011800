package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/gpu/shader"
)

var (
	sizeAttribute = regexp.MustCompile(`@workgroup_size\(([^)]*)\)`)
	sharedArray   = regexp.MustCompile(`var<workgroup>\s+\w+\s*:\s*([^;]+);`)
	arrayType     = regexp.MustCompile(`^array<(.+),\s*(\d+)>$`)
	bindingNumber = regexp.MustCompile(`@binding\((\d+)\)`)
)

// validate checks a program against what the device can do. The library does not check workgroup memory, and a driver may
// crash on what it does not expect.
func (p *programs) validate(source string) error {
	l := p.device.limits
	m := sizeAttribute.FindStringSubmatch(source)
	if m == nil {
		return fmt.Errorf("it has no workgroup size")
	}
	threads := 1
	for _, f := range strings.Split(m[1], ",") {
		n, err := strconv.Atoi(strings.TrimSpace(f))
		if err != nil || n < 1 {
			return fmt.Errorf("its workgroup size is %q", m[1])
		}
		threads *= n
	}
	if threads > l.Invocations {
		return fmt.Errorf("a workgroup has %d invocations, the limit is %d", threads, l.Invocations)
	}
	shared := 0
	for _, m := range sharedArray.FindAllStringSubmatch(source, -1) {
		n := typeSize(m[1])
		if n == 0 {
			return fmt.Errorf("workgroup memory of type %q", m[1])
		}
		shared += n
	}
	if shared > l.WorkgroupStorage {
		return fmt.Errorf("a workgroup uses %d bytes of memory, the limit is %d", shared, l.WorkgroupStorage)
	}
	most := 0
	for _, m := range bindingNumber.FindAllStringSubmatch(source, -1) {
		n, _ := strconv.Atoi(m[1])
		most = max(most, n)
	}
	if most > min(l.Bindings, shader.MaxBuffers) {
		return fmt.Errorf("it binds %d buffers, the limit is %d", most, min(l.Bindings, shader.MaxBuffers))
	}
	return nil
}

// typeSize returns the size of a type in workgroup memory; 0 for one it does not know.
func typeSize(t string) int {
	t = strings.TrimSpace(t)
	if m := arrayType.FindStringSubmatch(t); m != nil {
		n, _ := strconv.Atoi(m[2])
		return n * typeSize(m[1])
	}
	switch {
	case t == "f32" || t == "u32" || t == "i32" || t == "atomic<u32>":
		return 4
	case strings.HasPrefix(t, "vec2<"):
		return 8
	case t == "mat2x4<f32>":
		return 32
	case strings.HasPrefix(t, "vec4<"):
		return 16
	}
	return 0
}
