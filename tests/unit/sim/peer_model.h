// What Hop and NOTIFY-ACK must answer, worked out from the rules of their papers and nothing else:
// a second, plain implementation beside the daemon's, kept in step with it by a checker that sees
// all its events. Of the daemon's code it uses only the graphs themselves (topology::generate and
// distances). Slow and simple on purpose. One thread.
//
// Clocks are as the daemon counts them: c_i is the iteration that worker i is in, its latest
// granted begin. An edge j -> i says that j sends its updates to i.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/engine/types.h"
#include "daemon/core/engine/worker.h"
#include "daemon/core/topology/graph_spec.h"

namespace syncd::test {

// A decentralized policy and its parameters.
struct PeerRules {
  std::string graph = "ring";                       // as the policy's text has it
  std::shared_ptr<const topology::GraphFile> file;  // of `file:...`
  bool notify_ack = false;
  std::int64_t max_ig = 4;
  std::optional<std::int64_t> backup;
  std::map<Rank, std::int64_t> backup_of;  // workers with a number of their own
  std::optional<std::int64_t> staleness;
  std::int64_t skip = 0;
  std::optional<std::int64_t> skip_trigger;

  std::string text() const;  // the policy string; any graph is taken (force=1)
  // How far ahead all out-neighbours are when a worker jumps: by default as far as they get. One
  // whose updates may be S old waits for the next when it is S + 1 ahead.
  std::int64_t jumps_from() const {
    if (skip_trigger) return *skip_trigger;
    return staleness && *staleness + 1 < max_ig ? *staleness + 1 : max_ig;
  }
  bool has_backup() const { return backup || !backup_of.empty(); }
  // An in-neighbour's update queue: how many iterations it can hold at once. Hop, section 6.1: the
  // sender is at most max_ig ahead; staleness keeps older ones in use, and a jump two sets at once.
  // NOTIFY-ACK: the next is sent when the last one was read.
  std::int64_t slots() const;
};

class PeerModel {
 public:
  // `ranks`: more than any rank that there will be.
  PeerModel(const PeerRules& rules, std::uint32_t ranks);

  struct Standing {  // a request that is not answered yet
    Call call = Call::kBegin;
    Iteration iteration = 0;
  };
  struct Worker {
    bool active = false;
    std::string host;
    ConnectionId connection = 0;
    Iteration clock = -1;
    Iteration pushed = -1;  // the latest
    std::set<Iteration> pushes;
    Iteration collected = -1;  // of the latest answered collect
    Iteration consumed = -1;
    std::optional<Standing> standing;
    // The set of collect(clock - 1), fixed when it jumped to its clock.
    std::optional<std::vector<wire::PeerUpdate>> jump_set;
  };
  struct Edge {
    bool live = false;
    Iteration first = 0;      // what counts over it begins with this iteration
    Iteration sender_at = 0;  // the sender's clock when it came to be
    Iteration consumed = -1;  // staleness: the newest update of which a reduce was told
  };

  // ---- membership
  void start(const std::vector<Rank>& members);
  void enter(Rank rank, Clock clock);
  void exit(Rank rank);
  bool started() const { return started_; }
  const std::vector<Rank>& active() const { return active_; }
  Worker& worker(Rank rank) { return workers_[rank]; }
  const Worker& worker(Rank rank) const { return workers_[rank]; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(workers_.size()); }
  // The clock with which a worker enters the running job now.
  Clock entry_clock(Rank rank) const;

  const Edge& edge(Rank from, Rank to) const { return edges_[from * workers_.size() + to]; }
  const std::vector<Rank>& in(Rank rank) const { return in_[rank]; }
  const std::vector<Rank>& out(Rank rank) const { return out_[rank]; }

  // ---- what each call must be answered with now; empty: it has to wait
  struct Entry {
    Iteration iteration = 0;
    std::optional<std::vector<wire::PeerUpdate>> jump_set;
  };
  std::optional<Entry> begin(Rank rank) const;
  std::optional<std::vector<Rank>> targets(Rank rank, Iteration k) const;
  std::optional<std::vector<wire::PeerUpdate>> collect(Rank rank, Iteration k) const;
  bool can_answer(Rank rank) const;                // its standing request
  std::int64_t lag(Rank rank, Iteration k) const;  // how far the last of its in-neighbours is back

  // ---- and what it does to the worker
  void granted(Rank rank, const Entry& entry);
  void collected(Rank rank, Iteration k, const std::vector<wire::PeerUpdate>& updates);
  void pushed(Rank rank, Iteration k);

  // Workers that wait for one another in a circle, or for nobody: not one of them will ever be
  // answered, whatever all others do. O(rounds * edges).
  std::vector<Rank> deadlocked() const;

  // ---- Table 1 of Hop's paper
  // The most that c_i - c_j may be, twice: by what i collects (`steps` from j to i), and by the
  // tokens or ACKs that i takes (steps from i to j). Where the membership has changed, an edge of
  // the path binds its ends only from its own first iteration on; c_i may then be what it was, and
  // the bound is the larger of c_j + gap and `free`.
  struct Bound {
    bool exists = false;
    std::int64_t gap = 0;
    Iteration free = 0;
  };
  Bound by_updates(Rank i, Rank j) const { return by_updates_[i * workers_.size() + j]; }
  Bound by_tokens(Rank i, Rank j) const { return by_tokens_[i * workers_.size() + j]; }

 private:
  using Node = topology::Node;
  Edge& edge_of(Rank from, Rank to) { return edges_[from * workers_.size() + to]; }
  topology::Graph graph_now() const;
  void rebuild();
  void make_bounds(const topology::Graph& graph);
  std::int64_t spare(Rank rank, std::size_t counted) const;
  bool acknowledged(Rank from, Rank to, Iteration k) const;
  bool is_usable(Rank from, Rank to, Iteration k) const;
  std::optional<std::vector<wire::PeerUpdate>> gather(Rank rank, Iteration k) const;
  void weigh(Rank rank, Iteration k, std::vector<wire::PeerUpdate>& updates) const;

  PeerRules rules_;
  topology::GraphSpec spec_;
  bool started_ = false;
  std::vector<Worker> workers_;
  std::vector<Rank> active_;
  bool metropolis_ = false;
  std::vector<Edge> edges_;
  std::vector<std::vector<Rank>> in_, out_;
  std::vector<Bound> by_updates_, by_tokens_;
};

}  // namespace syncd::test
