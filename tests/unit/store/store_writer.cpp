// Writes records of job 1 to a store for ever, a batch a record, going on where the store ends, and
// tells each committed sequence on standard output: the process that a test kills. A program of its
// own, because RocksDB's threads do not survive a fork.
//   store_writer DIRECTORY durable|fast BYTES-PER-RECORD
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "daemon/edge/store/store.h"
#include "tests/unit/store/samples.h"

int main(int argc, char** argv) {
  using namespace syncd;
  using namespace syncd::store;
  if (argc != 4) return 2;
  Options options;
  options.path = argv[1];
  options.mode = std::string(argv[2]) == "fast" ? Mode::kFast : Mode::kDurable;
  options.queue_records_max = 64;  // many small commits rather than few huge ones
  std::string error;
  const auto store = open_rocks_store(options, error);
  if (!store) return 1;
  std::vector<RecoveredJob> jobs;
  if (!store->load(jobs, error)) return 1;
  // Tickets are sequences here.
  Sequence next = jobs.empty() ? 1 : jobs[0].records.size() + 1;
  store->start([](const CommitReport& report) {
    if (!report.error.empty()) _exit(1);
    if (write(STDOUT_FILENO, &report.committed, sizeof report.committed) < 0) _exit(1);
  });
  for (;; ++next) {
    Record record = next == 1 ? creation(1) : push(1, next);
    record.reason.assign(std::strtoul(argv[3], nullptr, 10), 'x');
    Batch batch{{std::move(record)}, {}};
    while (!store->submit(next, std::move(batch))) std::this_thread::yield();
  }
}
