// Reads of stored history for clients: in the background, and only so many at once of one client,
// so that whoever asks for a lot leaves room for the others. Owned and called by the loop thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "daemon/edge/server/background.h"
#include "daemon/edge/store/store.h"
#include "proto/wire/wire.h"

namespace syncd::server {

// The answer to a HistoryRequest. A record that fits no frame (a plan for thousands of workers)
// travels in several answers. `read`: what the store has from the request's sequence on. Begins at
// byte `from_byte` of its first record; an Error if that has fewer. Pure.
wire::Body history_reply(store::ReadResult read, std::uint64_t from_byte);

class HistoryReads {
 public:
  using Answer = std::function<void(wire::Body)>;

  HistoryReads(Background& background, store::Store& store)
      : background_(background), store_(store) {}

  // Answers with a HistoryReply or an Error, once: LIMIT at once if `client`, or all together, have
  // as many reads standing as is allowed, else from the loop. `job` is that of the request.
  void read(const std::string& client, JobId job, const wire::HistoryRequest& request,
            Answer answer);

  // Reads that stand, of one client and of all. Each takes a reply's bytes until it is answered.
  static constexpr std::size_t kPerClientMax = 16;
  static constexpr std::size_t kMax = 256;

 private:
  void finish(const std::string& client);

  Background& background_;
  store::Store& store_;
  std::map<std::string, std::size_t> standing_;  // by client, none of them 0
  std::size_t standing_in_all_ = 0;
};

}  // namespace syncd::server
