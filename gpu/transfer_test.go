package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

// TestStoreFetchedBytes changes downloaded bytes in place and stores them back, also for regions that begin or end within a word.
func TestStoreFetchedBytes(t *testing.T) {
	d := device(t)
	s := d.NewStream(0).(core.Stager)
	defer s.Close()
	m, err := s.Alloc(64)
	require.NoError(t, err)
	defer s.Free(m)
	want := make([]byte, 64)
	for i := range want {
		want[i] = byte(i)
	}
	s.Upload(m, 0, want)
	for range 3 { // the staging buffer is reused
		f, err := s.Fetch([]core.Region{{Memory: m, Offset: 2, Size: 17}, {Memory: m, Offset: 32, Size: 16}}, nil)
		require.NoError(t, err)
		require.NoError(t, f.Wait())
		back := f.Back(s)
		require.NotNil(t, back, "lavapipe and drivers of GPUs have such buffers")
		for i, from := range []int{2, 32} {
			require.Equal(t, want[from:from+len(f.Bytes(i))], back.Bytes(i))
			for k := range back.Bytes(i) {
				back.Bytes(i)[k] ^= 0xff
				want[from+k] ^= 0xff
			}
		}
		back.Store(nil).Wait()
		got := make([]byte, 64)
		s.Download(got, m, 0)
		require.Equal(t, want, got)
	}
	require.NoError(t, s.Synchronize())
	f, err := s.Fetch([]core.Region{{Memory: m, Size: 64}}, nil)
	require.NoError(t, err)
	require.NoError(t, f.Wait())
	f.Back(s).Release()
	require.NoError(t, s.Synchronize())
}
