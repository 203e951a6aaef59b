"""`tf.contrib.distribute`: the strategies that are still in `tf.distribute`, with their old arguments."""

import tensorflow as tf

from ferroflow import contrib

OneDeviceStrategy = tf.distribute.OneDeviceStrategy
ReductionToOneDeviceCrossDeviceOps = ReductionToOneDeviceCrossTowerOps = tf.distribute.ReductionToOneDevice
CrossDeviceOps = CrossTowerOps = tf.distribute.CrossDeviceOps


class MirroredStrategy(tf.distribute.MirroredStrategy):
    __doc__ = tf.distribute.MirroredStrategy.__doc__

    def __init__(self, devices=None, num_gpus=None, num_gpus_per_worker=None, cross_device_ops=None, auto_shard_dataset=False,
                 cross_tower_ops=None):
        # Each worker here reads its own part of a dataset in any case.
        del auto_shard_dataset
        gpus = num_gpus if num_gpus is not None else num_gpus_per_worker
        if devices is None and gpus is not None:
            devices = [f"/device:GPU:{index}" for index in range(gpus)] or ["/device:CPU:0"]
        super().__init__(devices, cross_device_ops or cross_tower_ops)


def AllReduceCrossDeviceOps(all_reduce_alg="nccl", num_packs=1, agg_small_grads_max_bytes=0, agg_small_grads_max_group=10):
    """Returns the cross-device operations for the algorithm of that name."""
    del agg_small_grads_max_bytes, agg_small_grads_max_group
    if all_reduce_alg == "nccl":
        return tf.distribute.NcclAllReduce(num_packs)
    return tf.distribute.HierarchicalCopyAllReduce(num_packs)


AllReduceCrossTowerOps = AllReduceCrossDeviceOps

__getattr__ = contrib.missing_from(__name__)
