//go:build cgo && linux && amd64

package webgpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu/driver"
)

func TestIdentify(t *testing.T) {
	adapters := []driver.Adapter{
		{Name: "A", Vendor: 1, Device: 2}, {Name: "B", Vendor: 1, Device: 3}, {Name: "A", Vendor: 1, Device: 2}, {Name: "C", Vendor: 1, Device: 4},
	}
	identify(adapters, []vulkanDevice{
		{"B", 1, 3, [16]byte{1}, 10}, {"A", 1, 2, [16]byte{2}, 20}, {"A", 1, 2, [16]byte{3}, 30}, {"A", 9, 2, [16]byte{4}, 40},
		{"C", 1, 4, [16]byte{5}, 50}, {"C", 1, 4, [16]byte{6}, 60},
	})
	var uuids, memory []int
	for _, a := range adapters {
		uuids, memory = append(uuids, int(a.UUID[0])), append(memory, a.Memory)
	}
	require.Equal(t, []int{2, 1, 3, 0}, uuids, "of two lists that differ, nothing is known")
	require.Equal(t, []int{20, 10, 30, 0}, memory)
}

// TestAdaptersAreIdentified checks that each adapter of Vulkan has a UUID of its own, the same each time.
func TestAdaptersAreIdentified(t *testing.T) {
	list := Driver.Adapters()
	if len(list) == 0 {
		t.Skip("no adapter")
	}
	require.Equal(t, list, Driver.Adapters())
	known := map[[16]byte]bool{{}: true}
	for _, a := range list {
		require.False(t, known[a.UUID], "%s has the UUID %x", a.Name, a.UUID)
		require.Positive(t, a.Memory, a.Name)
		known[a.UUID] = true
	}
}
