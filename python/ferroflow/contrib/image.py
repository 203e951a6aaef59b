"""`tf.contrib.image`: projective transforms."""

import tensorflow as tf
from tensorflow.python.ops import gen_image_ops

from ferroflow import contrib


def transform(images, transforms, interpolation="NEAREST", output_shape=None, name=None):
    """Applies a transform of eight numbers, which maps output points to input points, to each image."""
    with tf.name_scope(name, "transform"):
        images = tf.convert_to_tensor(images)
        transforms = tf.convert_to_tensor(transforms, tf.float32)
        rank = images.shape.ndims
        if rank is None:
            raise TypeError("image_or_images rank must be statically known")
        if rank not in (2, 3, 4):
            raise TypeError("Images should have rank between 2 and 4.")
        batch = images[None, :, :, None] if rank == 2 else images[None] if rank == 3 else images
        if transforms.shape.ndims == 1:
            transforms = transforms[None]
        size = tf.shape(batch)[1:3] if output_shape is None else tf.convert_to_tensor(output_shape, tf.int32)
        moved = gen_image_ops.image_projective_transform_v2(batch, transforms, size, interpolation.upper())
        return moved[0, :, :, 0] if rank == 2 else moved[0] if rank == 3 else moved


def angles_to_projective_transforms(angles, image_height, image_width, name=None):
    """Returns the transforms that rotate images about their centre."""
    with tf.name_scope(name, "angles_to_projective_transforms"):
        angles = tf.convert_to_tensor(angles, tf.float32)
        angles = angles[None] if angles.shape.ndims == 0 else angles
        cos, sin = tf.cos(angles), tf.sin(angles)
        width, height = image_width - 1, image_height - 1
        x = (width - (cos * width - sin * height)) / 2.0
        y = (height - (sin * width + cos * height)) / 2.0
        zeros = tf.zeros_like(angles)
        return tf.stack([cos, -sin, x, sin, cos, y, zeros, zeros], axis=1)


def rotate(images, angles, interpolation="NEAREST", name=None):
    """Rotates images counterclockwise by angles in radians."""
    with tf.name_scope(name, "rotate"):
        images = tf.convert_to_tensor(images)
        height, width = (0, 1) if images.shape.ndims in (2, 3) else (1, 2)
        shape = tf.cast(tf.shape(images), tf.float32)
        return transform(images, angles_to_projective_transforms(angles, shape[height], shape[width]), interpolation)


def translate(images, translations, interpolation="NEAREST", name=None):
    """Translates images by (dx, dy)."""
    with tf.name_scope(name, "translate"):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


def translations_to_projective_transforms(translations, name=None):
    """Returns the transforms that translate images by (dx, dy)."""
    moves = tf.convert_to_tensor(translations, tf.float32)
    moves = moves[None] if moves.shape.ndims == 1 else moves
    ones, zeros = tf.ones_like(moves[:, 0]), tf.zeros_like(moves[:, 0])
    return tf.stack([ones, zeros, -moves[:, 0], zeros, ones, -moves[:, 1], zeros, zeros], axis=1)


__getattr__ = contrib.missing_from(__name__)
