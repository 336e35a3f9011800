// The main function of an emulated program: its arguments are the number of workgroups and the files of the parameters and the operands, of
// which the last is written.

static parameters words;
static buffer operands[3];

static void thread() {
  plait_main(words, operands[0], operands[1], operands[2]);
  emulator::ended[emulator::current] = true;
  swapcontext(&emulator::threads[emulator::current], &emulator::scheduler);
}

static std::vector<char> contents(const char *path) {
  FILE *f = fopen(path, "rb");
  std::vector<char> bytes;
  for (int c; (c = fgetc(f)) != EOF;) bytes.push_back(c);
  fclose(f);
  return bytes;
}

int main(int, char **arguments) {
  using namespace emulator;
  const int groups = atoi(arguments[1]);
  const std::vector<char> p = contents(arguments[2]);
  memcpy(&words, p.data(), p.size());
  std::vector<std::vector<char>> files;
  for (int i = 0; i < 3; i++) files.push_back(contents(arguments[3 + i]));
  for (int i = 0; i < 3; i++) {
    ::operands[i] = {files[i].data(), files[i].size()};
    emulator::operands.push_back({files[i].data(), files[i].size()});
  }
  constexpr size_t STACK = 256 << 10;
  std::vector<char> stacks(STACK * ALL);
  gridDim.x = groups;
  for (blockIdx.x = 0; blockIdx.x < (u32)groups; blockIdx.x++) {
    memset((void *)tiles, 0xff, sizeof tiles); // shared memory is not zero
    int left = ALL;
    for (int t = 0; t < ALL; t++) {
      getcontext(&threads[t]);
      threads[t].uc_stack.ss_sp = stacks.data() + t * STACK;
      threads[t].uc_stack.ss_size = STACK;
      makecontext(&threads[t], thread, 0);
      ended[t] = false;
    }
    while (left > 0)
      for (int t = 0; t < ALL; t++) {
        if (ended[t]) continue;
        threadIdx.x = current = t;
        swapcontext(&scheduler, &threads[t]);
        left -= ended[t];
      }
  }
  FILE *f = fopen(arguments[5], "wb");
  fwrite(files[2].data(), 1, files[2].size(), f);
  return fclose(f);
}
