package collective

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/coretest/wiretest"
	"github.com/plait-ml/plait/parallel/flight"
)

// TestFlightRecord takes a record while two ranks wait for a third one, which is in another collective of the same group.
func TestFlightRecord(t *testing.T) {
	const ranks = 3
	taken := make(chan struct{})
	var record *flight.Record
	require.NoError(t, spawn(ranks, nil, longTimeout, func(r *Rank) error {
		g := r.World
		if err := g.For("bucket 1").AllReduce(filled(1000, 1), Sum).Wait(); err != nil {
			return err
		}
		if r.Rank == 0 {
			if err := g.Send(filled(3, 1), 2, 7).Wait(); err != nil {
				return err
			}
		}
		if r.Rank < 2 {
			w := g.AllGatherInto(filled(6, 0), filled(2, 1))
			if r.Rank == 0 {
				if err := g.Send(filled(0, 1), 2, 1).Wait(); err != nil { // it follows the call above
					return err
				}
			}
			<-taken
			return w.Wait()
		}
		if err := errors.Join(g.Recv(filled(3, 1), -1, 7).Wait(), g.Recv(filled(0, 1), 0, 1).Wait()); err != nil {
			return err
		}
		got := make(chan *flight.Record)
		for { // until rank 1 has called too
			go func() { got <- g.FlightRecord() }()
			record = <-got
			if slices.ContainsFunc(record.Operations, func(o flight.Operation) bool { return o.Rank == 1 && o.Name == "all_gather" }) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		close(taken)
		return g.AllGatherInto(filled(6, 0), filled(2, 1)).Wait()
	}))
	for rank := range ranks {
		var own []flight.Operation
		for _, o := range record.Operations {
			if o.Rank == rank {
				own = append(own, o)
			}
		}
		first := own[0]
		assert.Equal(t, "all_reduce(sum) of float64[1000] for bucket 1", first.Call())
		assert.Equal(t, []any{"world", uint64(1), 8000, flight.Done}, []any{first.Group, first.Seq, first.Bytes, first.State})
		assert.LessOrEqual(t, first.Called, first.Started)
		assert.LessOrEqual(t, first.Started, first.Ended)
		var gathers []flight.Operation
		for _, o := range own {
			if o.Name == "all_gather" {
				gathers = append(gathers, o)
			}
		}
		if rank == 2 {
			assert.Empty(t, gathers)
			continue
		}
		require.Len(t, gathers, 1)
		assert.Equal(t, flight.Waiting, gathers[0].State)
		assert.Zero(t, gathers[0].Started)
	}
	table := record.Table()
	assert.Contains(t, table, "not called")
	assert.Contains(t, table, "send(to 2, tag 7) of float64[3]")
	assert.Contains(t, table, "recv(from any, tag 7) of float64[3]")
	assert.Less(t, strings.Index(table, "all_gather"), strings.Index(table, "all_reduce"), "what is not done comes first")
}

// TestFlightRecordSize checks that a record keeps as many operations as the environment says.
func TestFlightRecordSize(t *testing.T) {
	t.Setenv("PLAIT_FLIGHT_RECORDER_SIZE", "3")
	var last []flight.Operation
	require.NoError(t, Spawn(2, nil, longTimeout, func(r *Rank) error {
		for range 10 {
			if err := r.World.Barrier(); err != nil {
				return err
			}
		}
		if r.Rank == 0 {
			last = r.World.Recorder()
		}
		return nil
	}))
	require.Len(t, last, 3)
	require.Equal(t, uint64(10), last[2].Seq)
	t.Setenv("PLAIT_FLIGHT_RECORDER_SIZE", "none")
	_, err := NewWorld(1, Options{})
	require.ErrorContains(t, err, "PLAIT_FLIGHT_RECORDER_SIZE")
}

// recordsOf waits for the files of n processes and returns their record.
func recordsOf(t *testing.T, folder string, n int) *flight.Record {
	files, err := filepath.Glob(filepath.Join(folder, "flight-*.json"))
	require.NoError(t, err)
	require.Len(t, files, n)
	records, err := flight.Read(folder)
	require.NoError(t, err)
	require.Len(t, records, 1)
	return records[0]
}

// TestFaultsAreRecorded makes a rank late, disagree or fail. Every process must write its part, and errors name the file.
func TestFaultsAreRecorded(t *testing.T) {
	cases := map[string]struct {
		rank1   func(r *Rank, over chan struct{}) error
		want    []string
		timeout time.Duration
	}{
		"late": {func(_ *Rank, over chan struct{}) error { <-over; return nil },
			[]string{"! broadcast(root 0) of float64[3]", "not called", "has not arrived within 100ms"}, 100 * time.Millisecond},
		"disagrees": {func(r *Rank, _ chan struct{}) error { _ = r.World.Barrier(); return nil },
			[]string{"! barrier", "! broadcast(root 0) of float64[3]", "the ranks disagree"}, time.Minute},
		"fails": {func(*Rank, chan struct{}) error { return errors.New("no more paper") },
			[]string{"! broadcast(root 0) of float64[3]", "not called", "no more paper"}, time.Minute},
	}
	for name, c := range cases {
		for layout, processes := range map[string]int{"": 1, "one rank each": 3, "pairs": 2} {
			t.Run(name+" "+layout, func(t *testing.T) {
				folder := t.TempDir()
				over := make(chan struct{})
				o := Options{Timeout: c.timeout, Log: func(string) {}, FlightRecords: folder}
				var mu sync.Mutex
				var errs []error
				run := func(r *Rank) error {
					if err := r.World.WithTimeout(time.Minute).AllReduce(filled(2, 1), Sum).Wait(); err != nil {
						return err
					}
					if r.Rank == 1 {
						return c.rank1(r, over)
					}
					err := r.World.Broadcast(filled(3, 1), 0).Wait()
					mu.Lock()
					defer mu.Unlock()
					if errs = append(errs, err); len(errs) == 2 {
						close(over)
					}
					return nil
				}
				if layout == "" {
					_ = Spawn(3, nil, o, run)
				} else {
					counts := layouts[layout](3)
					_ = spawnIn(wiretest.New(len(counts), 0, 1), counts, nil, o, run)
				}
				for _, err := range errs {
					require.ErrorContains(t, err, "; the flight record is in "+filepath.Join(folder, "flight-"))
					path := err.Error()[strings.Index(err.Error(), folder):]
					require.FileExists(t, path)
					require.Equal(t, 1, strings.Count(err.Error(), recordedIn))
				}
				record := recordsOf(t, folder, processes)
				require.Empty(t, record.Missing())
				table := strings.Join(strings.Fields(record.Table()), " ")
				for _, want := range c.want {
					for _, word := range strings.Fields(want) {
						assert.Contains(t, table, word)
					}
				}
				assert.Contains(t, table, "all_reduce(sum) of float64[2]")
			})
		}
	}
}

// TestLostProcessIsRecorded loses a process. The others must write what they heard of it.
func TestLostProcessIsRecorded(t *testing.T) {
	folder := t.TempDir()
	net := wiretest.New(3, 0, 1)
	var reduced sync.WaitGroup
	reduced.Add(3)
	o := longTimeout
	o.FlightRecords = folder
	require.NoError(t, eachProcess(net, []int{1, 1, 1}, o, func(w *World, _ int) error {
		return w.Spawn(nil, func(r *Rank) error {
			if err := r.World.AllReduce(filled(2, 1), Sum).Wait(); err != nil {
				return err
			}
			reduced.Done()
			if r.Rank == 1 {
				reduced.Wait()
				net.Lose(1, false)
				r.World.WriteFlightRecords("") // it is dead
				return nil
			}
			if err := r.World.Barrier(); err == nil || !strings.Contains(err.Error(), recordedIn) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}))
	if files, _ := filepath.Glob(filepath.Join(folder, "*-1.json")); len(files) > 0 { // it may have noticed its loss before it was told not to
		require.NoError(t, os.Remove(files[0]))
	}
	record := recordsOf(t, folder, 2)
	require.Len(t, record.Missing(), 1)
	require.Contains(t, record.Missing(), 1)
	require.True(t, slices.ContainsFunc(record.Operations, func(o flight.Operation) bool { return o.Rank == 1 && o.Heard && o.Name == "all_reduce" }))
	require.Contains(t, record.Table(), "rank 1 (heard by another process)")
}

// TestUnwritableRecord names a folder that cannot be made. The operation's error must stay what it is.
func TestUnwritableRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	warnings := make(chan string, 10)
	o := Options{Timeout: 50 * time.Millisecond, Log: func(string) {}, Warn: func(s string) { warnings <- s }, FlightRecords: filepath.Join(file, "folder")}
	err := Spawn(2, nil, o, func(r *Rank) error {
		if r.Rank == 1 {
			time.Sleep(200 * time.Millisecond)
			return nil
		}
		return r.World.Barrier()
	})
	require.ErrorContains(t, err, "has not arrived within 50ms")
	require.Contains(t, <-warnings, "the flight record cannot be written: ")
}

// TestStragglers makes a rank come late to every collective.
func TestStragglers(t *testing.T) {
	for name, layout := range map[string][]int{"threads": nil, "processes": {1, 1, 1}, "pairs": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var warnings []string
			o := Options{Timeout: time.Minute, Log: func(string) {}, Stragglers: Stragglers{Collectives: 10, Period: time.Millisecond, Share: 0.7, Lost: 0.3},
				Warn: func(s string) {
					mu.Lock()
					defer mu.Unlock()
					warnings = append(warnings, s)
				}}
			var record *flight.Record
			run := func(r *Rank) error {
				for i := range 60 {
					if r.Rank == 1 {
						time.Sleep(5 * time.Millisecond)
					}
					if err := r.World.AllReduce(filled(10, 1), Sum).Wait(); err != nil {
						return err
					}
					if i == 40 {
						if err := r.World.WarnOfStragglers(Stragglers{Off: true}); err != nil {
							return err
						}
					}
				}
				if r.Rank == 1 {
					record = r.World.FlightRecord()
				}
				return r.World.Barrier()
			}
			if layout == nil {
				require.NoError(t, Spawn(3, nil, o, run))
			} else {
				require.NoError(t, spawnIn(wiretest.New(len(layout), 0, 1), layout, nil, o, run))
			}
			require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(warnings) > 0 }, 10*time.Second, time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			for _, warning := range warnings {
				require.Contains(t, warning, "rank 1 ")
				require.Contains(t, warning, "holds up the group of the ranks [0 1 2]: it was the last to arrive in ")
			}
			if layout == nil {
				late := record.Ranks[1]
				require.Equal(t, 60, late.Collectives)
				require.Greater(t, late.Last, 40)
				require.Greater(t, late.Late, float64(time.Millisecond))
				require.Greater(t, record.Ranks[0].Wait, float64(time.Millisecond))
				require.Contains(t, record.Table(), "mean lateness")
			}
		})
	}
	_, err := NewWorld(2, Options{Stragglers: Stragglers{Share: 2}})
	require.ErrorContains(t, err, "got a share of collectives of 2 for stragglers, want one between 0 and 1")
	_, err = NewWorld(2, Options{Stragglers: Stragglers{Collectives: -1}})
	require.ErrorContains(t, err, "want positive ones")
}

// TestStragglerWindows counts arrivals at given times: the second rank is warned of once until it has kept up for a window.
func TestStragglerWindows(t *testing.T) {
	warnings := make(chan string, 10)
	o := Options{Stragglers: Stragglers{Collectives: 4, Period: time.Microsecond}, Warn: func(s string) { warnings <- s }}
	groups, err := NewWorld(3, o)
	require.NoError(t, err)
	m := groups[0].local.rendezvous
	now := int64(1)
	collective := func(late, takes int64) {
		r := &round{rendezvous: m, median: now + 2}
		for _, called := range []int64{now, now + 2 + late, now + 2} {
			w := newWork("")
			w.times.called = called
			r.calls = append(r.calls, &rankCall{work: w})
		}
		now += takes
		m.stragglers.note(r, now)
	}
	window := func(late int64) {
		for range 4 {
			collective(late, 1000)
		}
	}
	m.stragglers.note(&round{rendezvous: m, calls: make([]*rankCall, 3)}, now) // the first collective begins the window
	window(500)
	require.Equal(t, "rank 1 holds up the group of the ranks [0 1 2]: it was the last to arrive in 4 of 4 collectives, and behind the median of the ranks "+
		"for 50% of the last 0s\n", <-warnings)
	window(500)
	window(50) // last, but by little
	for range 4 {
		collective(300, 0) // they overlap: the time counts once
	}
	now += 3700
	collective(0, 300)
	require.Zero(t, m.stragglers.warned)
	window(500)
	require.Contains(t, <-warnings, "rank 1 holds up")
	require.NoError(t, groups[0].WarnOfStragglers(Stragglers{Off: true}))
	window(50)
	window(500)
	require.Empty(t, warnings)
	for _, g := range groups {
		require.NoError(t, g.Close())
	}
}
