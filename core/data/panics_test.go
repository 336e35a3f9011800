package data_test

import (
	"testing"

	"github.com/plait-ml/plait/core/coretest"
)

func TestNothingPanics(t *testing.T) {
	coretest.NothingPanics(t, exportedFunctions, exportedStructs, 200)
}
