package cpu

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestControlGroupLimits(t *testing.T) {
	const (
		unified = "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
		legacy  = "31 23 0:28 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs rw,mode=755\n" +
			"34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
			"35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory"
		v1 = "sys/fs/cgroup/memory/"
	)
	for name, c := range map[string]struct {
		groups, mounts string
		files          map[string]string
		want           int64
	}{
		"none":       {"", "", nil, math.MaxInt64},
		"no limits":  {"0::/a", unified, map[string]string{"sys/fs/cgroup/a/memory.max": "max\n"}, math.MaxInt64},
		"own":        {"0::/a/b", unified, map[string]string{"sys/fs/cgroup/a/b/memory.max": "300\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 300},
		"above":      {"0::/a/b", unified, map[string]string{"sys/fs/cgroup/a/b/memory.max": "300\n", "sys/fs/cgroup/a/memory.max": "200\n"}, 200},
		"far above":  {"0::/a/b/c", unified, map[string]string{"sys/fs/cgroup/memory.max": "100\n", "sys/fs/cgroup/a/b/c/memory.max": "max\n"}, 100},
		"beside":     {"0::/a/b", unified, map[string]string{"sys/fs/cgroup/a/c/memory.max": "1\n", "sys/fs/cgroup/a/b/memory.max": "7\n"}, 7},
		"top":        {"0::/", unified, map[string]string{"sys/fs/cgroup/memory.max": "100\n"}, 100},
		"first":      {"4:memory:/a/b\n3:cpu:/c\n0::/", legacy, map[string]string{v1 + "a/b/memory.limit_in_bytes": "400\n", v1 + "memory.limit_in_bytes": "9223372036854771712\n"}, 400},
		"joined":     {"4:cpu,memory:/a", "35 31 0:32 / /cg/cpu,memory rw - cgroup cgroup rw,cpu,memory", map[string]string{"cg/cpu,memory/a/memory.limit_in_bytes": "50"}, 50},
		"both":       {"4:memory:/a\n0::/b", legacy + "\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw", map[string]string{v1 + "a/memory.limit_in_bytes": "60", "sys/fs/cgroup/unified/b/memory.max": "40"}, 40},
		"a part":     {"0::/pod/box/job", "35 24 0:30 /pod/box /sys/fs/cgroup rw - cgroup2 cgroup rw", map[string]string{"sys/fs/cgroup/job/memory.max": "30", "sys/fs/cgroup/memory.max": "70"}, 30},
		"outside":    {"0::/../other", "35 24 0:30 /pod /sys/fs/cgroup rw - cgroup2 cgroup rw", map[string]string{"sys/fs/cgroup/memory.max": "70"}, 70},
		"alike":      {"0::/podium", "35 24 0:30 /pod /sys/fs/cgroup rw - cgroup2 cgroup rw", map[string]string{"sys/fs/cgroup/ium/memory.max": "1", "sys/fs/cgroup/memory.max": "70"}, 70},
		"with space": {"0::/a", `35 24 0:30 / /sys/my\040groups rw - cgroup2 cgroup rw`, map[string]string{"sys/my groups/a/memory.max": "20"}, 20},
		"nonsense":   {"0:\nx\n::", "a b - cgroup2\n- - -\n1 2 3 4 5 - cgroup2 x y", map[string]string{"memory.max": "-1"}, math.MaxInt64},
	} {
		root := fstest.MapFS{
			"proc/self/cgroup":    {Data: []byte(c.groups + "\n")},
			"proc/self/mountinfo": {Data: []byte(c.mounts + "\n")},
		}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, c.want, cgroupLimit(root), name)
	}
	require.Equal(t, int64(math.MaxInt64), cgroupLimit(fstest.MapFS{}), "where there is nothing of the kind")
}
