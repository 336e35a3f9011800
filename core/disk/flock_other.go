//go:build !linux && !darwin

package disk

import (
	"errors"
	"os"
)

func flock(*os.File) error { return errors.ErrUnsupported }
