package cpu

/*
#include <unistd.h>
*/
import "C"

import (
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// budget limits the memory that all CPU devices together take from the system. Linux overcommits memory and would kill the process instead
// of returning an error.
var budget = struct {
	once  sync.Once
	limit atomic.Int64
	used  atomic.Int64
}{}

// MemoryLimit returns the limit of all CPU devices together in bytes: PLAIT_CPU_MEMORY, or else 90 % of the smaller of the machine's memory
// and the memory limit of the process's control group.
func MemoryLimit() int {
	budget.once.Do(func() {
		if budget.limit.Load() == 0 {
			budget.limit.Store(defaultLimit())
		}
	})
	return int(budget.limit.Load())
}

// SetMemoryLimit sets the limit of all CPU devices together, in bytes.
func SetMemoryLimit(bytes int) { budget.limit.Store(int64(bytes)) }

// SetMemoryLimit sets the limit of this device in bytes, within the limit of all; 0 removes it. CPU devices can thus simulate devices with
// memory of their own.
func (d *Device) SetMemoryLimit(bytes int) { d.limit.Store(int64(bytes)) }

func defaultLimit() int64 {
	if n := environment().memory; n > 0 {
		return n
	}
	machine := int64(C.sysconf(C._SC_PHYS_PAGES)) * int64(C.sysconf(C._SC_PAGESIZE))
	return min(machine, cgroupLimit(os.DirFS("/"))) / 10 * 9
}

// cgroupLimit returns the smallest memory limit of the process's control groups and their parents; math.MaxInt64 without one. It reads both
// cgroup versions. root is the file system.
func cgroupLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	groups := readCgroups(root)
	for _, mount := range readLines(root, "proc/self/mountinfo") {
		// An example line: "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup cgroup rw,memory". Fields 4 and 5 are the mounted path of the
		// hierarchy and the mount point. The type and the options follow after a dash.
		fields, kind, ok := strings.Cut(mount, " - ")
		f, k := strings.Fields(fields), strings.Fields(kind)
		if !ok || len(f) < 5 || len(k) < 3 {
			continue
		}
		var file, group string
		switch {
		case k[0] == "cgroup2":
			file, group = "memory.max", groups.unified
		case k[0] == "cgroup" && slices.Contains(strings.Split(k[2], ","), "memory"):
			file, group = "memory.limit_in_bytes", groups.legacy
		default:
			continue
		}
		mounted, at := unescape(f[3]), strings.TrimPrefix(unescape(f[4]), "/")
		// In a container the group may be outside the mount; the mount's root counts then.
		below, inside := strings.CutPrefix(group+"/", strings.TrimSuffix(mounted, "/")+"/")
		if !inside {
			below = ""
		}
		for dir := path.Join(at, below); ; dir = path.Dir(dir) {
			for _, line := range readLines(root, path.Join(dir, file)) {
				if n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err == nil && n > 0 { // otherwise "max"
					limit = min(limit, n)
				}
			}
			if dir == at || dir == "." {
				break
			}
		}
	}
	return limit
}

// cgroups are the paths of the process's control groups: unified for cgroup v2, legacy for the v1 memory hierarchy.
type cgroups struct{ unified, legacy string }

func readCgroups(root fs.FS) (g cgroups) {
	for _, line := range readLines(root, "proc/self/cgroup") {
		parts := strings.SplitN(line, ":", 3) // "4:memory:/a/b", or "0::/a/b"
		switch {
		case len(parts) < 3:
		case parts[0] == "0" && parts[1] == "":
			g.unified = parts[2]
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			g.legacy = parts[2]
		}
	}
	return g
}

func readLines(root fs.FS, name string) []string {
	raw, err := fs.ReadFile(root, name)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

var unescaper = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// unescape decodes the octal escapes of paths in mountinfo.
func unescape(s string) string { return unescaper.Replace(s) }
