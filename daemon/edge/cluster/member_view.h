// What the admin pages show of a member of a cluster. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace syncd::cluster {

struct MemberView {
  std::string cluster;
  std::string member;
  std::uint32_t shard = 0;
  std::string leader;       // as the member saw last; empty: none
  bool leads = false;       // this member
  std::int64_t term = 0;    // of the leader key; 0: there is none
  std::uint64_t first = 1;  // entry of the log in etcd
  std::uint64_t last = 0;
  std::uint64_t copied = 0;  // the last entry that this member's copy has
  // Why it could not lead now. Empty: it leads, or could.
  std::string problem;
  std::uint64_t set_aside = 0;  // copies that lie beside it
  // Of who leads.
  bool was_given = false;       // by the leader before; else that one had gone
  std::int64_t lease_left = 0;  // for so long it may still grant, in microseconds
  // Of etcd's database: in use, and of its file, which never shrinks by itself; 0: not known yet.
  std::uint64_t etcd_bytes = 0;
  std::uint64_t etcd_file_bytes = 0;
  std::uint64_t etcd_quota_bytes = 0;
};

}  // namespace syncd::cluster
