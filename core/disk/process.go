package disk

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"strings"
)

// Boot returns a name for the time that the machine's kernel runs, which no other machine has; "" where the kernel has none.
func Boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// bootOf returns [Boot], or the machine's own name where the kernel has none.
func bootOf(host string) string { return cmp.Or(Boot(), host) }

// processStart returns when a process began, in a spelling that no other process of the same number shares; "" if there is no
// such process, or nobody says.
func processStart(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the program's name in brackets, which may hold anything; the time is the 22nd.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}
