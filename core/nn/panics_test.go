package nn_test

import (
	"testing"

	"github.com/plait-ml/plait/core/coretest"
)

func TestNothingPanics(t *testing.T) {
	coretest.NothingPanics(t, exportedFunctions, exportedStructs, 2,
		"RegisterModule") // nor more rounds: parts of parts of parts have ever more names
}
