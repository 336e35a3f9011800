package bind

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/crosscheck"
	"github.com/plait-ml/plait/core/op"
)

// SelftestName returns the name of operation i of the registry, nothing for one past the last.
func SelftestName(i int64) string {
	if rows := op.Rows(); i >= 0 && i < int64(len(rows)) {
		return rows[i].Name
	}
	return ""
}

// SelftestRun compares what a device computes for samples of operation i with what the CPU does. It returns nothing where they agree, "lacks "
// and the reason where the device has no kernel for the operation, and otherwise the difference.
//
//plait:waits
func SelftestRun(d Device, i int64) string {
	dev, rows := device(d), op.Rows()
	if dev == nil || i < 0 || i >= int64(len(rows)) {
		return core.Errorf(core.ValueError, "selftest", "no device %d, or no operation %d", d, i).Error()
	}
	lacks, err := crosscheck.Row(dev, rows[i])
	switch {
	case err != nil:
		return err.Error()
	case lacks != "":
		return "lacks " + lacks
	}
	return ""
}
