// What the loop and the liveness timers ask for when a worker comes into the job or goes. The job
// implements it. One thread at a time.
#pragma once

#include <string>

#include "daemon/core/engine/worker.h"

namespace syncd {

class Membership {
 public:
  virtual ~Membership() = default;
  // The worker asks to begin, or no longer does, while the job waits for its start.
  virtual void set_ready(Worker& worker, bool ready) = 0;
  // A member that was not ready when the job started enters now.
  virtual void admit(Worker& worker) = 0;
  // A draining worker leaves now.
  virtual void drain_out(Worker& worker, const std::string& reason) = 0;
  // The worker is declared lost.
  virtual void lose(Worker& worker, const std::string& reason) = 0;
  // A worker that is about to be lost is kept until then all the same; 0: it is not.
  virtual Micros keeps_until(const Worker& worker) const = 0;
  // The worker, which has not pushed yet, waits for others in a collective: it is not late.
  virtual bool exchanges(const Worker& worker) const = 0;
  // The job is over.
  virtual void end_job(const std::string& reason) = 0;
  // From now on workers are lost again that have not come back since a restart of the daemon.
  virtual void end_amnesty() = 0;
};

}  // namespace syncd
