"""A loop of one's own, without `fit`: ranks with less data, and checkpoints in between.

python examples/training_loop.py
horovodrun -np 2 python examples/training_loop.py
"""

import tempfile

import tfhybrid
import keras
import tensorflow as tf
from tfhybrid.data import Batches, ClickLog, Shard

tfhybrid.init(seed=1)
keras.utils.set_random_seed(1)
log = ClickLog({"user": 500, "item": 100}, seed=1, latent_dim=4)
# Each rank has its own samples here, and not as many as the next.
mine = log.clicks(tfhybrid.rank() * 500_000, 300_000 - 10_000 * tfhybrid.rank())
train = Batches(mine, 1024, seed=1, shard=Shard(0, 1))
test = Batches(log.clicks(10_000_000, 20_000), 1024, seed=1, shuffle=False)

table = tfhybrid.TableConfig(dim=8, optimizer=tfhybrid.optimizers.Adam(0.02))
model = tfhybrid.models.deepfm(["user", "item"], table=table, hidden=(32,))
optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3))
model.compile(optimizer)  # so that a checkpoint holds the optimizer too
loss_of = keras.losses.BinaryCrossentropy(from_logits=True)


@tf.function
def step(features: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
    """Trains on a batch of this rank; the optimizer brings the ranks together."""
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(features, training=True))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


checkpoints = tfhybrid.checkpoint.CheckpointManager(model, tempfile.mkdtemp())
for epoch in range(2):
    for features, labels in train.dataset(epoch):
        loss = step(features, labels)
    optimizer.join()  # takes part in the others' steps until all have come here
    checkpoints.save(tfhybrid.data.Position(epoch + 1, 0))  # written while training goes on
    scores = tfhybrid.metrics.evaluate(model, test.dataset())
    if tfhybrid.rank() == 0:
        print(f"epoch {epoch}: loss {loss:.4f}, test AUC {scores['auc']:.4f}")
checkpoints.wait()
best = log.best_auc(20_000, start=10_000_000).drawn
if tfhybrid.rank() == 0:
    print(f"test AUC {scores['auc']:.4f}; the best possible is {best:.4f}")
