package collective

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/plait-ml/plait/core/coretest/wiretest"
)

// layouts are ways to distribute ranks over processes.
var layouts = map[string]func(n int) []int{
	"one rank each": func(n int) []int {
		counts := make([]int, n)
		for i := range counts {
			counts[i] = 1
		}
		return counts
	},
	"pairs": func(n int) (counts []int) {
		for ; n > 0; n -= 2 {
			counts = append(counts, min(n, 2))
		}
		return counts
	},
	"all but one": func(n int) []int {
		if n == 1 {
			return []int{1}
		}
		return []int{n - 1, 1}
	},
}

// underTest is how spawn distributes ranks: nil puts all in one process.
var underTest struct {
	layout func(n int) []int
	delay  time.Duration
}

// spawn is [Spawn] with the ranks in the processes of the layout under test.
func spawn(n int, devices []string, o Options, fn func(r *Rank) error) error {
	if underTest.layout == nil || n < 1 {
		return Spawn(n, devices, o, fn)
	}
	return spawnIn(wiretest.New(len(underTest.layout(n)), underTest.delay, uint64(n)), underTest.layout(n), devices, o, fn)
}

// spawnIn runs fn on ranks in processes that are parts of this one. counts are the ranks of each.
func spawnIn(net *wiretest.Net, counts []int, devices []string, o Options, fn func(r *Rank) error) error {
	return eachProcess(net, counts, o, func(w *World, first int) error {
		var own []string
		for i := range counts[w.Process()] {
			if len(devices) == 0 {
				own = append(own, fmt.Sprint("cpu:", first+i))
			} else {
				own = append(own, devices[(first+i)%len(devices)])
			}
		}
		return w.Spawn(own, fn)
	})
}

// eachProcess joins a world in each process and calls fn with it and the number of its first rank.
func eachProcess(net *wiretest.Net, counts []int, o Options, fn func(w *World, first int) error) error {
	errs := make([]error, len(counts))
	var wg sync.WaitGroup
	first := 0
	for p, n := range counts {
		wg.Add(1)
		go func(first int) {
			defer wg.Done()
			w, err := JoinWorld(net.Transport(p), n, o)
			if err != nil {
				errs[p] = err
				return
			}
			errs[p] = errors.Join(fn(w, first), w.Close())
		}(first)
		first += n
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TestSuiteAcrossProcesses runs the tests of ranks of one process with the ranks in several.
func TestSuiteAcrossProcesses(t *testing.T) {
	for name, layout := range layouts {
		if testing.Short() && name != "pairs" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			underTest.layout, underTest.delay = layout, 0
			if name == "pairs" {
				underTest.delay = 200 * time.Microsecond
			}
			defer func() { underTest.layout = nil }()
			for _, test := range []struct {
				name string
				run  func(t *testing.T)
			}{
				{"all reduce of bools", TestAllReduceOfBools}, {"all collectives", TestCase01AllCollectives}, {"all to all into", TestAllToAllInto},
				{"sums in rank order", TestCase03SumsInRankOrder}, {"disagreement", TestCase04Disagreement},
				{"failed collective", TestFailedCollectiveFailsItsTensor}, {"rank fails", TestRankFails}, {"timeout", TestTimeout},
				{"monitored barrier", TestMonitoredBarrier}, {"groups", TestCase05Groups}, {"new group disagreement", TestNewGroupDisagreement},
				{"works", TestCase06Works}, {"memory after wait", TestCase06MemoryAfterWait}, {"release", TestReleaseDuringCollective},
				{"writes wait", TestWriteWaitsForPeersReads}, {"bad arguments", TestBadArguments}, {"bytes", TestCase07Bytes},
				{"two devices", TestTensorsOnTwoDevices}, {"shared devices", TestSharedDevices}, {"leaks", TestCollectivesLeakNoMemory},
				{"parts", TestParts}, {"parts that differ", TestPartsWithDifferentTensorCounts}, {"purposes", TestPurposesDiffer},
				{"purposes of sends", TestPurposesOfSendsDiffer}, {"revoked channels", TestRevokedChannels},
				{"crossed calls", TestWaitForRanksUnlessCrossed}, {"renew", TestRenew}, {"refused", TestCallsBeforeAndAfterARefusedCollective},
				{"recover", TestRecoverAfterASkippedCall}, {"send and recv", TestSendRecv}, {"send and recv errors", TestSendRecvErrors},
				{"reads", TestReadsDuringACollective}, {"slow value", TestSlowValueIsNoDeadlock}, {"threads", TestOtherThreadsPreventDeadlock},
				{"collectives of parts", TestCollectivesOfParts}, {"parts in place", TestGatherOfAPartOfItsOutput},
				{"parts in other rows", TestReduceScatterOfOtherRows}, {"link rate", TestLinkRate}, {"flight record", TestFlightRecord},
			} {
				t.Run(test.name, test.run)
			}
		})
	}
}
