package core

import (
	"os"
	"strconv"
	"strings"
)

// EnvNumber returns the whole number in an environment variable, or otherwise if it is unset or empty. A value outside least to most, or no
// number, is an error; a device's package returns it when the device is opened.
func EnvNumber(variable string, least, most, otherwise int) (int, error) {
	value := os.Getenv(variable)
	if value == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return otherwise, Errorf(ValueError, "device", "%s is %q, want a whole number from %d to %d", variable, value, least, most)
	}
	return n, nil
}

// EnvFlag reports whether an environment variable is 1. Unset and 0 mean false; any other value is an error, as in [EnvNumber].
func EnvFlag(variable string) (bool, error) {
	n, err := EnvNumber(variable, 0, 1, 0)
	return n == 1, err
}

// EnvBytes returns the size in an environment variable, in bytes or with a unit such as "8GiB"; 0 if it is unset or empty. Any other value
// is an error, as in [EnvNumber].
func EnvBytes(variable string) (int64, error) {
	value := os.Getenv(variable)
	if value == "" {
		return 0, nil
	}
	n, ok := parseBytes(value)
	if !ok {
		return 0, Errorf(ValueError, "device", "%s is %q, want bytes, or a size such as 8GiB", variable, value)
	}
	return n, nil
}

// parseBytes reads a size such as "8GiB", "512M" or "1000000".
func parseBytes(s string) (int64, bool) {
	s = strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(s)), "B"), "I")
	shift := 0
	if s != "" {
		if i := strings.IndexByte("KMGT", s[len(s)-1]); i >= 0 {
			shift, s = 10*(i+1), s[:len(s)-1]
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v <= 0 || v*float64(int64(1)<<shift) > 1<<62 {
		return 0, false
	}
	return int64(v * float64(int64(1)<<shift)), true
}
