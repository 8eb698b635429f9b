// HostUpdate: the updates of one optimizer on one host: the mailboxes of its ranks and, on the
// leader, what applies them.
//
// Files in the store's directory, for an update named NAME:
//
//   NAME.R.mail, NAME.R.mail.G    mailbox of local rank R, where each rank posts its own message
//   NAME.all.mail, ...            the leader's own, for the messages of all ranks or hosts at once
//   NAME.journal                  what the leader is applying
//
// A rank's posts are one thread's at a time, and so is the leader's half; the two may run at once.
#ifndef TFHYBRID_CORE_UPDATE_HOST_UPDATE_H_
#define TFHYBRID_CORE_UPDATE_HOST_UPDATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/compute/gradient_sum.h"
#include "core/store/store.h"
#include "core/update/contribution.h"
#include "core/update/gradient_packer.h"
#include "core/update/mailbox.h"
#include "core/update/table_update.h"
#include "core/update/update_journal.h"
#include "core/util/mutex.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class HostUpdate {
 public:
  // Makes this process's files of the update of that name; once per process and store.
  static Result<std::shared_ptr<HostUpdate>> Open(const std::shared_ptr<Store>& store,
                                                  const std::string& name,
                                                  const UpdateSettings& settings);

  const UpdateSettings& settings() const { return settings_; }

  // A micro-batch: its gradients go with the message that this rank posts next.
  void Keep(const std::vector<KeyGradients>& tables);
  // Packs micro-batches that were kept and then `batch`, by table, into the words that `allocate`
  // has, as this rank's message to all ranks. Thread-safe.
  Status Pack(const std::vector<KeyGradients>& batch, const Contribution& contribution,
              const std::function<Result<Span<int64_t>>(int64_t words)>& allocate,
              const ParallelFor& parallel_for);
  // Posts them. REQUIRES and failures as of Post(); thread-safe.
  Status PostBatch(const std::vector<KeyGradients>& batch, const Contribution& contribution,
                   const ParallelFor& parallel_for);

  // Posts this rank's message of `key_counts` keys per table that `fill` writes. Where it cannot,
  // the leader is told. REQUIRES: the tables have reached the version that the last post led to.
  Status Post(Span<const int64_t> key_counts,
              const std::function<void(const MessageBuilder&)>& fill);
  // Instead, where there is nothing to post: tells the leader why.
  void PostFailure(const std::string& why) { mailbox_->PostFailure(why); }

  // The leader's half. Waits for the next message of every rank of this host; kPeerDied if one will
  // not come. Not with Exchange::kAllRanks.
  Result<std::vector<GradientMessage>> Collect();
  // Posts messages of all ranks or hosts, with their gradients as floats. In words, they lie end to
  // end.
  Status PostAll(Span<const int64_t> words);
  Status PostAll(const std::vector<GradientMessage>& messages);
  // Posts the messages that `fill` writes end to end, in so many words.
  Status PostAll(int64_t words, const std::function<void(Span<int64_t>)>& fill);
  // Words for which PostAll() cannot fail.
  int64_t RoomForAll() const { return posted_all_->Room(); }
  Result<std::vector<GradientMessage>> ReadAll();

  // Everything about an update that may fail, and the rest (core/update/table_update.h).
  // REQUIRES: the writers are the caller's alone.
  Status Stage(const std::vector<GradientMessage>& messages,
               const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);
  const TableUpdate& staged() const { return *update_; }
  // Whether an update has begun that will be finished, by this process or by another.
  bool has_begun() const { return update_ != nullptr && update_->journal().begun(); }
  Status Commit(const StepNumbers& numbers, const std::vector<TableWriter*>& tables,
                const ParallelFor& parallel_for);
  // Both.
  Status Apply(const std::vector<GradientMessage>& messages, const StepNumbers& numbers,
               const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);

 private:
  HostUpdate(const std::shared_ptr<Store>& store, std::string name, UpdateSettings settings);
  std::string Path(const std::string& what) const;
  Status CheckRank(int local_rank) const;
  // Kept micro-batches and then `batch`, by table, as packer_ wants them.
  std::vector<std::vector<KeyGradients>> WithKept(const std::vector<KeyGradients>& batch) const
      TFHYBRID_REQUIRES(posting_);
  // Writes what packer_ has numbered.
  void FillNumbered(const Contribution& contribution, const MessageBuilder& message,
                    const ParallelFor& parallel_for) const TFHYBRID_REQUIRES(posting_);

  const std::weak_ptr<Store> store_;
  const std::string directory_;
  const uint64_t token_;
  const std::string name_;
  const UpdateSettings settings_;
  std::optional<Mailbox> mailbox_;  // this rank's; not with Exchange::kAllRanks
  struct KeptGradients {
    std::vector<int64_t> keys;
    std::vector<float> gradients;
  };
  Mutex posting_;
  // By micro-batch and table.
  std::vector<std::vector<KeptGradients>> kept_ TFHYBRID_GUARDED_BY(posting_);
  GradientPacker packer_ TFHYBRID_GUARDED_BY(posting_);  // scratch
  // The leader's.
  uint64_t led_ = 0;  // messages of each rank that were waited for
  std::vector<MailboxReader> readers_;
  std::optional<Mailbox> posted_all_;  // not where settings().FromRanks()
  std::vector<MailboxReader> all_;     // its reader, once opened
  std::unique_ptr<TableUpdate> update_;
  bool is_staged_ = false;
};

// A journal for updates of these tables, whatever optimizers they have or will have.
Result<UpdateJournal> CreateJournal(const std::string& path, uint64_t token,
                                    const UpdateSettings& settings,
                                    const std::vector<TableWriter*>& tables);

// The messages that an update applies, from the mailboxes where they lie still: one of each rank,
// or the one of all.
Result<std::vector<GradientMessage>> ReadApplied(const UpdateSettings& settings,
                                                 std::vector<MailboxReader>* readers);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_HOST_UPDATE_H_
