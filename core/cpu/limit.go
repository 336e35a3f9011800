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

// budget bounds what the CPU devices together take from the system: the kernel overcommits memory and would kill the
// process where an error is wanted.
var budget = struct {
	once  sync.Once
	limit atomic.Int64
	used  atomic.Int64
}{}

// MemoryLimit returns the bytes that CPU devices may hold together: PLAIT_CPU_MEMORY, or else 90 % of the memory that
// the machine has or, if that is less, the process's control group.
func MemoryLimit() int {
	budget.once.Do(func() {
		if budget.limit.Load() == 0 {
			budget.limit.Store(defaultLimit())
		}
	})
	return int(budget.limit.Load())
}

// SetMemoryLimit sets the bytes that CPU devices may hold together.
func SetMemoryLimit(bytes int) { budget.limit.Store(int64(bytes)) }

// SetMemoryLimit sets the bytes that this device may hold, within those of all; 0 sets no limit. So CPU devices rehearse
// ones with memory of their own.
func (d *Device) SetMemoryLimit(bytes int) { d.limit.Store(int64(bytes)) }

func defaultLimit() int64 {
	if n := environment().memory; n > 0 {
		return n
	}
	machine := int64(C.sysconf(C._SC_PHYS_PAGES)) * int64(C.sysconf(C._SC_PAGESIZE))
	return min(machine, groupLimit(os.DirFS("/"))) / 10 * 9
}

// groupLimit returns the least memory limit of the control groups that this process is in, the groups above them included;
// math.MaxInt64 for none. Groups of both versions of Linux's interface count: root is the file system.
func groupLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	groups := memoryGroups(root)
	for _, mount := range readLines(root, "proc/self/mountinfo") {
		// "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup cgroup rw,memory": the path in the hierarchy that is mounted and
		// where; then, after any number of fields and a dash, the type and the options.
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
		// A group outside what is mounted, as a container may see it, is counted as its top.
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

// groups are the paths of this process's control groups: in the second version's one hierarchy, and in the one that the first
// version has for memory.
type groups struct{ unified, legacy string }

func memoryGroups(root fs.FS) (g groups) {
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

// unescape undoes what the list of mounts does to paths.
func unescape(s string) string { return unescaper.Replace(s) }
