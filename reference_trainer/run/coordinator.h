// The trainer's whole view of the daemon: the calls of one worker. SyncdCoordinator makes them
// through the C interface <syncd/client.h>; tests put something else in its place. Used by one
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncd::trainer {

// A call that failed. what() names the status code and holds the library's message.
class CoordinatorError : public std::runtime_error {
 public:
  enum class Kind {
    kFenced,   // this worker was declared lost or replaced, or was taken back meanwhile and is not
               // in the iteration that it thinks: it may join anew
    kStopped,  // the job has ended
    kRetry,    // the same call may succeed when it is made again (a full disk, no daemon); whether
               // a push counted is unknown, but it counts once however often it is made
    kOther,    // refused for good
  };
  CoordinatorError(Kind kind, const std::string& message)
      : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

struct Step {
  std::int64_t iteration = 0;
  std::int64_t staleness = 0;
  bool pull = false;
  bool barrier = false;
  bool skip = false;
  bool stop = false;
  std::uint64_t checkpoint = 0;  // save the parameters as this checkpoint first; 0: do not
};

// How a worker leaves its job.
enum class LeaveKind { kLeft, kFailed, kPreempted };

struct PushReport {
  double loss = 0;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
};

class Coordinator {
 public:
  virtual ~Coordinator() = default;

  // Joins the job, before anything else. After kFenced: gives up this worker's place and joins
  // again under the same name. After kRetry: once more.
  virtual void join() = 0;

  // Asks for the next iteration and waits at most timeout_ms. Nothing: not granted in time, in
  // which case waiting_for() says who is waited for and the next call waits on.
  virtual std::optional<Step> begin(std::int64_t timeout_ms) = 0;
  virtual std::string waiting_for() const = 0;

  // True if the daemon advises to start the iteration over on fresher parameters.
  virtual bool should_resync() const = 0;

  // The advice is followed: the work on the iteration was dropped, and fresh parameters are pulled
  // next. Does not wait.
  virtual void restarted(std::int64_t iteration) = 0;

  // True if the others have gone on without this update (it is to be dropped).
  virtual bool push(std::int64_t iteration, const PushReport& report) = 0;

  virtual void leave() = 0;

  // The same, and says how and why. False: it has not left, because the checkpoint
  // wanted_checkpoint() is to be saved first.
  virtual bool leave_as(LeaveKind, const std::string& /*reason*/) {
    leave();
    return true;
  }

  // Asks for a checkpoint and returns its number. `leaving`: because this worker is about to go.
  virtual std::uint64_t request_checkpoint(const std::string& /*reason*/, bool /*leaving*/) {
    return 0;
  }
  // The one that a step or a leave told of last.
  virtual std::uint64_t wanted_checkpoint() const { return 0; }

  // From here until checkpointed() or the next begin or push the worker is not late.
  virtual void saving() {}

  // This worker's shard, that of its rank, is saved there. No effect on a checkpoint that was given
  // up.
  virtual void checkpointed(std::uint64_t /*number*/, const std::string& /*location*/) {}
};

// One update to reduce.
struct PeerUpdate {
  int rank = 0;
  std::int64_t iteration = 0;
  double weight = 0;
};

// Of a worker that exchanges parameters with its neighbours. targets and collect wait like begin,
// at most timeout_ms, and go on waiting when they are called again.
class PeerCoordinator : public Coordinator {
 public:
  // To whom this iteration's update is to be sent.
  virtual std::optional<std::vector<int>> targets(std::int64_t iteration,
                                                  std::int64_t timeout_ms) = 0;

  // Which updates to reduce; the own one is among them, and their weights sum up to 1.
  virtual std::optional<std::vector<PeerUpdate>> collect(std::int64_t iteration,
                                                         std::int64_t timeout_ms) = 0;

  // The updates that collect named have been read. Does not wait.
  virtual void consumed(std::int64_t iteration) = 0;
};

struct JoinRequest {
  std::string addresses;  // as syncd_client_options.addresses
  std::string job;
  std::string policy;
  int worker = 0;   // becomes the rank and the name
  int workers = 1;  // the job starts when this many have joined
  // Where the advice to start over is to be written, as syncd_join_options.resync_flag; null:
  // nowhere but where should_resync() looks. It lives as long as the coordinator.
  std::uint32_t* resync_flag = nullptr;
  bool checkpoints = false;  // this worker saves where a step says so
  std::uint64_t launch = 0;  // the number of this start of the trainer; 0: the environment says it
  std::int64_t resume_at = 0;  // the next iteration of the parameters that it has loaded; 0: fresh
};

// Opens a client, for a worker that is still to join. Throws CoordinatorError, which is meant for
// good whatever its kind: a daemon that does not answer the first time may be a wrong address.
std::unique_ptr<PeerCoordinator> connect_to_syncd(const JoinRequest& request);

}  // namespace syncd::trainer
