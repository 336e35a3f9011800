//go:build cgo && linux && amd64

package webgpu

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu/driver"
)

func TestAdaptersHaveLimits(t *testing.T) {
	list := Driver.Adapters()
	if len(list) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no adapter")
		}
		t.Skip("no adapter")
	}
	for _, a := range list {
		require.NotEmpty(t, a.Name)
		g, err := Driver.Open(a.Index)
		require.NoError(t, err)
		require.GreaterOrEqual(t, g.Limits().Binding, 128<<20)
		require.GreaterOrEqual(t, g.Limits().Bindings, 8)
		require.NoError(t, g.TakeError())
		g.Close()
	}
	_, err := Driver.Open(len(list))
	require.Error(t, err)
}

// TestListingPrintsNothing checks that listing adapters prints nothing, although the Vulkan loader's layers look for a display.
func TestListingPrintsNothing(t *testing.T) {
	const role = "TEST_LISTING"
	if os.Getenv(role) != "" {
		for _, a := range Driver.Adapters() {
			g, err := Driver.Open(a.Index)
			require.NoError(t, err)
			g.Close()
		}
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "XDG_RUNTIME_DIR" && name != "WAYLAND_DISPLAY" && name != "DISPLAY" {
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(c.Env, role+"=1")
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	require.NoError(t, err, string(out))
	require.Empty(t, said.String())
}

func TestErrorsAreNotFatal(t *testing.T) {
	if len(Driver.Adapters()) == 0 {
		t.Skip("no adapter")
	}
	g, err := Driver.Open(0)
	require.NoError(t, err)
	defer g.Close()
	_, err = g.NewPipeline(driver.Program{Source: "fn main( {", Buffers: 1, Params: 512})
	require.Error(t, err)
	_, err = g.NewBuffer(driver.Storage, g.Limits().Buffer+1024, false)
	require.Error(t, err)
	require.NoError(t, g.TakeError(), "errors are told once")
	b, err := g.NewBuffer(driver.Storage, 1024, false)
	require.NoError(t, err)
	b.Release()
}

// TestNoDeviceIsOpenedAfterShutdown opens and closes devices on other threads while the process shuts down. None may be opened
// afterwards.
func TestNoDeviceIsOpenedAfterShutdown(t *testing.T) {
	const role = "TEST_LEAVE"
	if os.Getenv(role) == "" {
		if len(Driver.Adapters()) == 0 {
			t.Skip("no adapter")
		}
		for _, opens := range []string{"none", "some"} {
			c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
			c.Env = append(os.Environ(), role+"="+opens)
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
		return
	}
	var others sync.WaitGroup
	if os.Getenv(role) == "some" {
		var first sync.WaitGroup
		for range 2 {
			others.Add(1)
			first.Add(1)
			go func() {
				defer others.Done()
				once := sync.OnceFunc(first.Done)
				for {
					g, err := Driver.Open(0)
					once()
					if err != nil {
						require.EqualError(t, err, "the process ends")
						return
					}
					g.Close()
				}
			}()
		}
		first.Wait()
	}
	require.True(t, Driver.Shutdown())
	require.Empty(t, Driver.Adapters())
	_, err := Driver.Open(0)
	require.EqualError(t, err, "the process ends")
	others.Wait()
	require.True(t, Driver.Shutdown())
}
