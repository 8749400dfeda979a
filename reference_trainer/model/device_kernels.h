// How a GPU's threads share the places of a step between them: the bodies of the kernels behind
// for_each() and reduce() (device_steps.h), for the GPU and, in the tests, for the CPU.
//
// A Team is the threads of one block, each of which has its own object of it:
//   Index block(), blocks();    // this block's number among those next to each other, and how many
//   Index row(), rows();        // likewise, of rows of blocks
//   Index thread(), threads();  // this thread's in its block; threads come in warps of kWarp
//   bool any_of_warp(bool), any_of_block(bool);  // of all its threads; all of them come here
//   float sum_of_warp(float), sum_of_block(float);  // in its first thread, in a fixed order;
//   likewise
//
// Where a StopRule applies, the first block does nothing but look at the host's words, so that the
// way there, a microsecond or more, delays nobody. Threads that wait for one another ask together
// whether they are stopped.
#pragma once

#include <algorithm>
#include <cstddef>

#include "reference_trainer/model/device_atomics.h"
#include "reference_trainer/model/device_steps.h"

namespace syncd::trainer {

inline constexpr Index kWarp = 32;
inline constexpr std::size_t kBlocksMax = 65'536;  // beyond it a thread takes several places
// A sum of very many terms is cut into pieces, whose sums are summed up in a second step.
inline constexpr std::size_t kTermsPerPiece = 1024;
inline constexpr std::size_t kPiecesMax = 256;
inline constexpr std::size_t kPartialSums = 16'384;  // of all pieces

inline Index looking_blocks(const StopRule& stop) {
  return stop.applies() ? 1 : 0;
}

// Blocks for so many places, of which each takes `per_block`.
inline Index blocks_for(std::size_t count, std::size_t per_block, const StopRule& stop) {
  const std::size_t blocks = (count + per_block - 1) / per_block;
  return static_cast<Index>(std::min(blocks, kBlocksMax)) + looking_blocks(stop);
}

// Into how many pieces a sum is cut, where there are `count` of them. 1, or 0: not at all.
inline Index pieces_of(std::size_t count, std::size_t terms_most) {
  const std::size_t wanted = (terms_most + kTermsPerPiece - 1) / kTermsPerPiece;
  return static_cast<Index>(std::min({wanted, kPartialSums / count, kPiecesMax}));
}

// True for those threads that have nothing more to do.
template <typename Team>
SYNCD_ON_DEVICE bool is_looking(Team& team, const StopRule& stop) {
  if (!stop.applies() || team.block() > 0) return false;
  if (team.row() == 0 && team.thread() == 0) stop.look();
  return true;
}

// A thread for every place.
template <typename Team, typename Function>
SYNCD_ON_DEVICE void for_each_place(Team& team, Index count, const Function& function,
                                    const StopRule& stop) {
  if (is_looking(team, stop) || stop.is_stopped()) return;
  const Index looking = stop.applies() ? 1 : 0;
  const std::size_t step = std::size_t{team.blocks() - looking} * team.threads();
  std::size_t i = std::size_t{team.block() - looking} * team.threads() + team.thread();
  for (; i < count; i += step) function(static_cast<Index>(i));
}

// A warp for every sum.
template <typename Team, typename Function>
SYNCD_ON_DEVICE void reduce_by_warp(Team& team, Index count, const Function& function,
                                    const StopRule& stop) {
  if (is_looking(team, stop) || team.any_of_warp(stop.is_stopped())) return;
  const Index looking = stop.applies() ? 1 : 0;
  const Index warps = team.threads() / kWarp;
  const Index lane = team.thread() % kWarp;
  const std::size_t step = std::size_t{team.blocks() - looking} * warps;
  std::size_t i = std::size_t{team.block() - looking} * warps + team.thread() / kWarp;
  for (; i < count; i += step) {
    const auto index = static_cast<Index>(i);
    const Index terms = function.terms(index);
    float sum = 0;
    for (Index t = lane; t < terms; t += kWarp) sum += function(index, t);
    sum = team.sum_of_warp(sum);
    if (lane == 0) function.store(index, sum);
  }
}

// A block for every piece of every sum: blocks next to each other belong to different sums, rows to
// the pieces. Leaves the pieces' sums in partial[i][piece].
template <typename Team, typename Function>
SYNCD_ON_DEVICE void reduce_pieces(Team& team, const Function& function, float* partial,
                                   const StopRule& stop) {
  if (is_looking(team, stop) || team.any_of_block(stop.is_stopped())) return;
  const Index i = team.block() - (stop.applies() ? 1 : 0);
  const Index terms = function.terms(i);
  const Index step = team.rows() * team.threads();
  float sum = 0;
  for (Index t = team.row() * team.threads() + team.thread(); t < terms; t += step) {
    sum += function(i, t);
  }
  sum = team.sum_of_block(sum);
  if (team.thread() == 0) partial[std::size_t{i} * team.rows() + team.row()] = sum;
}

// What is left to be summed up then.
template <typename Function>
struct SumPieces {
  Function function;
  const float* partial;
  Index pieces;

  SYNCD_TRAINER_DEVICE Index terms(Index) const { return pieces; }
  SYNCD_TRAINER_DEVICE float operator()(Index i, Index t) const {
    return partial[std::size_t{i} * pieces + t];
  }
  SYNCD_TRAINER_DEVICE void store(Index i, float sum) const { function.store(i, sum); }
};

}  // namespace syncd::trainer
