// Writes records to a store for ever, a batch a record, and tells each committed ticket on standard
// output: the process that a test kills. A program of its own, because RocksDB's threads do not
// survive a fork.
#include <unistd.h>

#include <thread>

#include "daemon/store/store.h"
#include "tests/unit/store/samples.h"

int main(int argc, char** argv) {
  using namespace syncd::store;
  if (argc != 2) return 2;
  Options options;
  options.path = argv[1];
  options.queue_records_max = 64;  // many small commits rather than few huge ones
  std::string error;
  const auto store = open_rocks_store(options, error);
  if (!store) return 1;
  store->start([](const CommitReport& report) {
    if (write(STDOUT_FILENO, &report.committed, sizeof report.committed) < 0) _exit(1);
  });
  Batch first{{creation(1)}, {}};
  if (!store->submit(1, std::move(first))) return 1;
  for (syncd::Ticket ticket = 2;; ++ticket) {
    Batch batch{{push(1, ticket)}, {}};
    while (!store->submit(ticket, std::move(batch))) std::this_thread::yield();
  }
}
