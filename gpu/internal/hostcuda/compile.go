package hostcuda

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/plait-ml/plait/gpu/driver"
)

//go:embed cuda.h
var header string

// options are the compiler's. Programs run once or a few times, so little optimization is worth its time. Products and sums become one
// operation where the host has it, as NVRTC makes them.
var options = func() []string {
	list := []string{"-std=c++17", "-O1", "-w", "-fPIC", "-fvisibility=hidden"}
	if about, _ := os.ReadFile("/proc/cpuinfo"); strings.Contains(string(about), " fma ") {
		return append(list, "-mfma", "-ffp-contract=fast")
	}
	return append(list, "-ffp-contract=off")
}()

// batchSize is how many programs a run of the compiler takes. Most of its time for a single one is the same for several.
const batchSize = 16

// A compiler is the host's C++ compiler, with a folder for what it compiles.
type compiler struct {
	path, version, folder string

	mu       sync.Mutex
	preludes map[string]string // the precompiled header of each prelude
}

// cc is the compiler of $CXX, or c++.
var cc = sync.OnceValues(func() (*compiler, error) {
	name := os.Getenv("CXX")
	if name == "" {
		name = "c++"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", path, err)
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = os.TempDir()
	}
	c := &compiler{path: path, version: string(version), folder: filepath.Join(folder, "plait", "hostcuda"), preludes: map[string]string{}}
	if err := os.MkdirAll(c.folder, 0o755); err != nil {
		return nil, err
	}
	c.trim(30 * 24 * time.Hour)
	return c, nil
})

// Missing returns why no program can be compiled, or nil.
func Missing() error {
	_, err := cc()
	return err
}

// trim deletes files that are older than age. What is missing is compiled again.
func (c *compiler) trim(age time.Duration) {
	files, _ := os.ReadDir(c.folder)
	for _, f := range files {
		if info, err := f.Info(); err == nil && time.Since(info.ModTime()) > age {
			os.RemoveAll(filepath.Join(c.folder, f.Name()))
		}
	}
}

// digest names what a text compiles to.
func (c *compiler) digest(text string) string {
	sum := sha256.Sum256([]byte(c.version + header + wrapper + strings.Join(options, " ") + text))
	return hex.EncodeToString(sum[:12])
}

// split parts a program from the prelude of its language, which many programs share.
func split(source string) (prelude, body string, err error) {
	const begin = "\nnamespace plait {\n\n"
	i := strings.LastIndex(source, begin)
	if i < 0 || !strings.Contains(source, " plait_main(") {
		return "", "", errors.New("the program is not one that shader.CUDA prints")
	}
	return source[:i], source[i+len(begin):], nil
}

var conversion = regexp.MustCompile(`asm\("cvt\.(\w+)\.(\w+) %0, %1;" : "=\w"\((\w+)\) : "\w"\((\w+)\)\);`)

// prelude returns the header that programs of a prelude begin with, compiled.
func (c *compiler) prelude(text string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if path := c.preludes[text]; path != "" {
		return path, nil
	}
	folder := filepath.Join(c.folder, "prelude-"+c.digest(text))
	path := filepath.Join(folder, "prelude.h")
	if _, err := os.Stat(path + ".gch"); err != nil {
		made, err := os.MkdirTemp(c.folder, "new-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(made)
		text := header + conversion.ReplaceAllString(text, "$3 = plait_cvt_${1}_$2($4);")
		fresh := filepath.Join(made, "prelude.h")
		if err := os.WriteFile(fresh, []byte(text), 0o644); err != nil {
			return "", err
		}
		if err := c.run("-x", "c++-header", fresh, "-o", fresh+".gch"); err != nil {
			return "", err
		}
		if err := os.Rename(made, folder); err != nil {
			if _, err := os.Stat(path + ".gch"); err != nil { // no other process has made it
				return "", err
			}
		}
	}
	c.preludes[text] = path
	return path, nil
}

func (c *compiler) run(arguments ...string) error {
	out, err := exec.Command(c.path, append(append([]string{}, options...), arguments...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%.4000s", c.path, err, out)
	}
	return nil
}

// wrapper is the text of a program in a library: the program in a namespace of its own, and an object that tells how to run it.
const wrapper = `
#undef __shared__
#define __shared__ __attribute__((section("shared_ID"), used)) static
#define plait_main plait_main_ID
namespace plait {
namespace program_ID {
BODY
#undef plait_main
SHARED
static void run_ID(const plait::parameters *p, const plait::buffer *b) { plait_main_ID(*pARGS); }
extern "C" __attribute__((visibility("default"))) const plait_program program_ID = {run_ID, START, STOP, &plait_here};
`

const libraryHead = `plait_place *plait_here;
struct plait_program {
  void (*run)(const plait::parameters *p, const plait::buffer *b);
  char *shared, *shared_end;
  plait_place **here;
};
`

// wrap puts a program, without its prelude, into wrapper.
func wrap(id, body string, buffers int) string {
	const end = "} // namespace plait\n"
	body = strings.Replace(body, end, "} "+end, 1)
	body = strings.Replace(body, "plait::program{", "plait::program_"+id+"::program{", 1)
	var args strings.Builder
	for i := range buffers {
		fmt.Fprintf(&args, ", b[%d]", i)
	}
	shared, start, stop := "", "nullptr", "nullptr"
	if strings.Contains(body, "__shared__") { // the linker names the ends of a section
		start, stop = "__start_shared_"+id, "__stop_shared_"+id
		shared = fmt.Sprintf(`extern "C" char %s[], %s[];`, start, stop)
	}
	return strings.NewReplacer("ID", id, "BODY", body, "SHARED", shared, "ARGS", args.String(), "START", start, "STOP", stop).Replace(wrapper)
}

// A unit is a program to compile.
type unit struct {
	id, body string
	buffers  int
}

// file returns the path of the library that has a program.
func (c *compiler) file(id string) string { return filepath.Join(c.folder, id+".so") }

// lacks reports whether a program has to be compiled.
func (c *compiler) lacks(id string) bool {
	_, err := os.Stat(c.file(id))
	return err != nil
}

// Compile compiles programs that will be run, several at a time. Those that are compiled already take no time.
func Compile(programs []driver.Program) error {
	c, err := cc()
	if err != nil {
		return err
	}
	byPrelude := map[string][]unit{}
	known := map[string]bool{}
	for _, p := range programs {
		prelude, body, err := split(p.Source)
		if err != nil {
			return err
		}
		if id := c.digest(p.Source); !known[id] && c.lacks(id) {
			known[id] = true
			byPrelude[prelude] = append(byPrelude[prelude], unit{id, body, p.Buffers})
		}
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failures []error
	slots := make(chan struct{}, runtime.NumCPU())
	for prelude, units := range byPrelude {
		for len(units) > 0 {
			n := min(batchSize, len(units))
			batch := units[:n]
			units = units[n:]
			slots <- struct{}{}
			wait.Go(func() {
				defer func() { <-slots }()
				if err := c.library(prelude, batch); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failures = append(failures, err)
				}
			})
		}
	}
	wait.Wait()
	return errors.Join(failures...)
}

// library compiles programs into one library, which each of them has a link to.
func (c *compiler) library(prelude string, units []unit) error {
	head, err := c.prelude(prelude)
	if err != nil {
		return err
	}
	made, err := os.MkdirTemp(c.folder, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	text, ids := libraryHead, ""
	for _, u := range units {
		text += wrap(u.id, u.body, u.buffers)
		ids += u.id
	}
	source, result := filepath.Join(made, "programs.cc"), filepath.Join(made, "programs.so")
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		return err
	}
	if err := c.run("-shared", "-include", head, source, "-o", result); err != nil {
		return err
	}
	for i, u := range units { // a hard link appears as a whole
		link := filepath.Join(made, fmt.Sprint(i))
		if err := os.Link(result, link); err != nil {
			return err
		}
		if err := os.Rename(link, c.file(u.id)); err != nil {
			return err
		}
	}
	return nil
}
