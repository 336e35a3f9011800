package core

import (
	"os"
	"strconv"
)

// EnvNumber returns the whole number in an environment variable, and otherwise where the variable is not set or empty. A value
// that is no number, or not from least to most, is an error; a device's package returns it where the device is opened.
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

// EnvFlag returns whether an environment variable is 1, not 0 or unset. Any other value is an error, as of [EnvNumber].
func EnvFlag(variable string) (bool, error) {
	n, err := EnvNumber(variable, 0, 1, 0)
	return n == 1, err
}
