//go:build cgo && linux && amd64

package native

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdaptersHaveLimits(t *testing.T) {
	list := Adapters()
	if len(list) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no adapter")
		}
		t.Skip("no adapter")
	}
	for _, a := range list {
		require.NotEmpty(t, a.Name)
		g, err := Open(a.Index)
		require.NoError(t, err)
		require.GreaterOrEqual(t, g.Limits.Binding, 128<<20)
		require.GreaterOrEqual(t, g.Limits.Bindings, 8)
		require.NoError(t, g.TakeError())
		g.Close()
	}
	_, err := Open(len(list))
	require.Error(t, err)
}

func TestErrorsAreReportedAndNotFatal(t *testing.T) {
	if len(Adapters()) == 0 {
		t.Skip("no adapter")
	}
	g, err := Open(0)
	require.NoError(t, err)
	defer g.Close()
	l := g.NewLayout(1, 512)
	defer l.Release()
	_, err = g.NewPipeline(l, "fn main( {")
	require.Error(t, err)
	_, err = g.NewBuffer(Storage, g.Limits.Buffer+1024, false)
	require.Error(t, err)
	require.NoError(t, g.TakeError(), "errors are told once")
	b, err := g.NewBuffer(Storage, 1024, false)
	require.NoError(t, err)
	b.Release()
}
