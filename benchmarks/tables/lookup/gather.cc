// The limit of any lookup: 65,536 rows of 64 bytes a call, at indices known beforehand, copied to
// an output with prefetching. No index, no key compared, no version waited for.
//
// A side of benchmarks/tables/lookup, whose driver compiles and starts it:
//   gather ROWS THREADS small|huge
// "huge" asks for pages of 2 MB. Each line "lookup CALLS" on standard input is answered with one
// line of JSON, the milliseconds of each call, by the clock and of all processors.
#include <sys/mman.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kKeys = 65536;
constexpr int64_t kPrefetchDistance = 32;

struct alignas(64) Row {
  float columns[16];
};

Row* MapRows(int64_t rows, bool huge) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t bytes = (rows * sizeof(Row) + kHugePage - 1) / kHugePage * kHugePage;
  // One huge page more, to begin at the start of one.
  void* mapping = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    std::perror("gather: mmap");
    std::exit(1);
  }
  const auto address = (reinterpret_cast<uintptr_t>(mapping) + kHugePage - 1) & ~(kHugePage - 1);
  auto* first = reinterpret_cast<Row*>(address);
  if (madvise(first, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0) {
    std::perror("gather: madvise");
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (float& column : first[i].columns) column = static_cast<float>(i);
  }
  return first;
}

// MiB of this process that lie in huge pages: the kernel may not have had any.
int64_t HugeMebibytes() {
  std::FILE* file = std::fopen("/proc/self/smaps_rollup", "r");
  if (file == nullptr) return -1;
  char line[256];
  long long kibibytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "AnonHugePages: %lld", &kibibytes) == 1) break;
  }
  std::fclose(file);
  return kibibytes / 1024;
}

void Gather(const Row* table, const int64_t* indices, int64_t count, Row* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchDistance < count) __builtin_prefetch(&table[indices[i + kPrefetchDistance]]);
    std::memcpy(&out[i], &table[indices[i]], sizeof(Row));
  }
}

// Lets threads begin and end a call together; they spin, as a call takes a millisecond or two.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}

  void Wait() {
    const int round = round_.load(std::memory_order_acquire);
    if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      waiting_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);  // pairs with the load below
      return;
    }
    while (round_.load(std::memory_order_acquire) == round) std::this_thread::yield();
  }

 private:
  const int threads_;
  std::atomic<int> waiting_{0};
  std::atomic<int> round_{0};
};

double Milliseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Times {
  std::vector<double> clock, processors;  // milliseconds of each call
};

// The first call, which wakes threads and caches, is left out.
Times TimeCalls(const Row* table, const std::vector<int64_t>& indices, int threads, Row* out) {
  const int64_t calls = static_cast<int64_t>(indices.size()) / kKeys;
  Times times;
  Barrier barrier(threads);
  const auto work = [&](int thread) {
    const int64_t begin = kKeys * thread / threads, end = kKeys * (thread + 1) / threads;
    for (int64_t call = 0; call < calls; ++call) {
      barrier.Wait();
      const double start = Milliseconds(CLOCK_MONOTONIC);
      const double processor_start = Milliseconds(CLOCK_PROCESS_CPUTIME_ID);
      Gather(table, indices.data() + call * kKeys + begin, end - begin, out + begin);
      barrier.Wait();
      if (thread > 0 || call == 0) continue;
      times.clock.push_back(Milliseconds(CLOCK_MONOTONIC) - start);
      times.processors.push_back(Milliseconds(CLOCK_PROCESS_CPUTIME_ID) - processor_start);
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
  return times;
}

std::string List(const std::vector<double>& values) {
  std::string list;
  for (const double value : values) list += (list.empty() ? "" : ", ") + std::to_string(value);
  return "[" + list + "]";
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc == 4 ? std::atoll(argv[1]) : 0;
  const int threads = argc == 4 ? std::atoi(argv[2]) : 0;
  if (rows < 1 || threads < 1) {
    std::cerr << "usage: gather ROWS THREADS small|huge" << std::endl;
    return 2;
  }
  const Row* table = MapRows(rows, std::strcmp(argv[3], "huge") == 0);
  std::vector<Row> out(kKeys);
  std::cout << "{\"ready\": {\"rows\": " << rows << ", \"huge_mebibytes\": " << HugeMebibytes()
            << "}}" << std::endl;
  std::mt19937_64 random(1);
  std::string operation;
  int64_t calls = 0;
  while (std::cin >> operation >> calls) {
    std::vector<int64_t> indices((calls + 1) * kKeys);
    for (int64_t& index : indices) index = static_cast<int64_t>(random() % rows);
    const Times times = TimeCalls(table, indices, threads, out.data());
    std::cout << "{\"milliseconds\": " << List(times.clock)
              << ", \"processor_milliseconds\": " << List(times.processors) << "}" << std::endl;
  }
  return 0;
}
