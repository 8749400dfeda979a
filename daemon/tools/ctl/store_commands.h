// `syncctl store`: what operators do to a store while its daemon is down. One thread.
#pragma once

#include <string>

namespace syncd::ctl {

struct StoreOptions {
  std::string path;   // of the store
  std::string other;  // backup: where to; restore: where from
  bool json = false;
};

// Each prints to standard output, errors to standard error, and returns the program's exit code;
// kExitStore where the store cannot be read or written, or is damaged.
int run_store_check(const StoreOptions& options);
int run_store_backup(const StoreOptions& options);
int run_store_restore(const StoreOptions& options);
int run_store_compact(const StoreOptions& options);

}  // namespace syncd::ctl
