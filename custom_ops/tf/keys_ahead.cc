#include "tf/keys_ahead.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/util/counters.h"
#include "core/util/phase_times.h"
#include "tf/bridge.h"

namespace tfhybrid {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

std::shared_ptr<KeysAhead> KeysAhead::Of(int64_t collection) {
  static Mutex* const mutex = new Mutex();
  static auto* const known = new std::map<int64_t, std::weak_ptr<KeysAhead>>();
  if (collection == 0) return nullptr;
  const MutexLock guard(*mutex);
  std::weak_ptr<KeysAhead>& of_collection = (*known)[collection];
  std::shared_ptr<KeysAhead> ahead = of_collection.lock();
  if (ahead == nullptr) of_collection = ahead = std::make_shared<KeysAhead>();
  return ahead;
}

Status KeysAhead::Put(OpKernelContext* context, const OpInputList& keys, int64_t batches) {
  Lookup lookup;
  {
    const MutexLock guard(mutex_);
    lookup = lookup_;
  }
  if (lookup.tables.size() != static_cast<size_t>(keys.size())) return Status::Ok();
  const PhaseTimer timer(Phase::kAhead);
  TFHYBRID_ASSIGN_OR_RETURN(NumberedKeys made, lookup.numbers->Make(context, keys));
  for (size_t table = 0; table < made.rows.size(); ++table) {
    const auto open = lookup.tables[lookup.numbers->first_feature(table)].lock();
    if (open == nullptr) continue;
    made.rows[table] = open->reader->FindAhead(made.distinct[table], ThreadsOf(context));
  }
  Batch batch = {{}, std::move(lookup.tables), {}};
  for (const Tensor& of_feature : keys) batch.keys.push_back(of_feature);
  batch.numbered = std::make_shared<const NumberedKeys>(std::move(made));
  const MutexLock guard(mutex_);
  used_ = true;
  batches_.push_back(std::move(batch));
  while (batches_.size() > static_cast<size_t>(batches)) batches_.pop_front();
  return Status::Ok();
}

std::shared_ptr<const NumberedKeys> KeysAhead::Take(const OpInputList& keys,
                                                    const OpenTables& tables,
                                                    const std::shared_ptr<KeyNumbers>& numbers) {
  const MutexLock guard(mutex_);
  if (lookup_.numbers != numbers || !AreSame(lookup_.tables, tables)) {
    lookup_ = {numbers, {tables.begin(), tables.end()}};
  }
  for (auto batch = batches_.begin(); batch != batches_.end(); ++batch) {
    if (!AreSame(batch->tables, tables) || !HasKeys(*batch, keys)) continue;
    std::shared_ptr<const NumberedKeys> numbered = std::move(batch->numbered);
    batches_.erase(batch);
    AddTo(Counter::kAheadHits, 1);
    return numbered;
  }
  if (used_) AddTo(Counter::kAheadMisses, 1);
  return nullptr;
}

bool KeysAhead::AreSame(const std::vector<std::weak_ptr<OpenTable>>& known,
                        const OpenTables& tables) {
  return std::equal(known.begin(), known.end(), tables.begin(), tables.end(),
                    [](const std::weak_ptr<OpenTable>& one, const std::shared_ptr<OpenTable>& two) {
                      return one.lock() == two;
                    });
}

// Of a batch that went from the data set to the lookup without a copy, the same memory.
bool KeysAhead::HasKeys(const Batch& batch, const OpInputList& keys) {
  return std::equal(batch.keys.begin(), batch.keys.end(), keys.begin(), keys.end(),
                    [](const Tensor& one, const Tensor& two) {
                      const Span<const int64_t> mine = Int64sOf(one), its = Int64sOf(two);
                      if (mine.size() != its.size()) return false;
                      return mine.data() == its.data() ||
                             std::equal(mine.begin(), mine.end(), its.begin());
                    });
}

}  // namespace tfhybrid
